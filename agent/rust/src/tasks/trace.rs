//! Polls a future once with tokio's leaf futures told to say where they are.
//!
//! For each stack the return addresses are kept, by the unwinder that every Rust program has for its panics; the daemon
//! names them. So nothing is read from disk and no name is made here.
use std::cell::Cell;
use std::future::Future;
use std::hint::black_box;
use std::os::raw::{c_int, c_void};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::dump::{trace_with, TraceMeta};

/// A task that waits for more things at once, or deeper, is rare, and shown in part.
const MAX_STACKS: usize = 16;
const MAX_FRAMES: usize = 128;

/// As in stackd/wire.h.
const WHOLE: u64 = 0;
const CUT: u64 = 1;

/// Return addresses, innermost first, with WHOLE or CUT behind each stack.
#[derive(Debug, Default)]
pub struct Stacks {
    pub words: Vec<u64>,
    count: usize,
}

thread_local!(static TRACING: Cell<bool> = const { Cell::new(false) });

/// Whether this thread is inside [`poll`].
pub fn is_tracing() -> bool {
    TRACING.try_with(Cell::get).unwrap_or(false)
}

struct Tracing;

impl Tracing {
    fn begin() -> Tracing {
        let _ = TRACING.try_with(|tracing| tracing.set(true));
        Tracing
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = TRACING.try_with(|tracing| tracing.set(false));
    }
}

type PollFn<F> = fn(Pin<&mut F>, &mut Context<'_>) -> Poll<<F as Future>::Output>;

/// `future` makes no progress in what waits for tokio, and has to be polled again.
pub fn poll<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> (Poll<F::Output>, Stacks) {
    let mut stacks = Stacks { words: Vec::with_capacity(64), count: 0 };
    // By an address that the compiler does not know, so that it is the one function that is called.
    let root: PollFn<F> = black_box(poll_below_root::<F>);
    let _tracing = Tracing::begin();
    let polled =
        trace_with(|| root(future, context), |leaf: &TraceMeta| stacks.add(leaf.trace_leaf_addr as usize, root as usize));
    (polled, stacks)
}

/// What it calls is the outermost frame of the stacks. Not inlined, and calls what it cannot inline and not as its last act: a
/// frame of its own for both.
#[inline(never)]
fn poll_below_root<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    let poll: PollFn<F> = black_box(F::poll);
    let polled = poll(future, context);
    black_box(&polled);
    polled
}

extern "C" {
    fn _Unwind_Backtrace(visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetRegionStart(frame: *mut c_void) -> usize;
}
const URC_NO_REASON: c_int = 0;
const URC_END_OF_STACK: c_int = 5;

struct Walk<'a> {
    words: &'a mut Vec<u64>,
    frames: usize,
    leaf: usize,
    root: usize,
    in_leaf: bool, // the frames so far are tokio's and ours: how it was found out
    at_root: bool,
}

impl Stacks {
    /// The calls between the functions `root` and `leaf`, of which the second is about to return.
    fn add(&mut self, leaf: usize, root: usize) {
        if self.count == MAX_STACKS {
            return;
        }
        self.count += 1;
        let begin = self.words.len();
        let mut walk = Walk { words: &mut self.words, frames: 0, leaf, root, in_leaf: true, at_root: false };
        unsafe { _Unwind_Backtrace(visit, (&mut walk as *mut Walk).cast()) };
        let whole = walk.at_root;
        if self.words.len() > begin {
            self.words.push(if whole { WHOLE } else { CUT });
        }
    }
}

extern "C" fn visit(frame: *mut c_void, walk: *mut c_void) -> c_int {
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    let function = unsafe { _Unwind_GetRegionStart(frame) };
    if function == walk.root {
        walk.at_root = true;
        return URC_END_OF_STACK;
    }
    if walk.in_leaf {
        walk.in_leaf = function != walk.leaf;
        return URC_NO_REASON;
    }
    if walk.frames == MAX_FRAMES {
        return URC_END_OF_STACK;
    }
    walk.frames += 1;
    walk.words.push(unsafe { _Unwind_GetIP(frame) } as u64);
    URC_NO_REASON
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    async fn inner(worker: &mut tokio::task::JoinHandle<u32>) -> u32 {
        worker.await.unwrap()
    }

    fn ends(stacks: &Stacks) -> Vec<u64> {
        stacks.words.iter().copied().filter(|&word| word == WHOLE || word == CUT).collect()
    }

    #[test]
    fn a_leaf_says_where_it_is_and_does_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut worker = tokio::spawn(async { 7 });
            while !worker.is_finished() {
                tokio::task::yield_now().await;
            }
            let mut future = pin!(inner(&mut worker));
            let mut context = Context::from_waker(Waker::noop());
            let (polled, stacks) = poll(future.as_mut(), &mut context);
            assert!(polled.is_pending(), "it has a result, which was not taken");
            assert_eq!(ends(&stacks), [WHOLE]);
            assert!(stacks.words.len() > 2, "{stacks:?}");
            assert!(!is_tracing());
            assert_eq!(future.await, 7);
        });
    }

    #[test]
    fn more_leaves_than_are_kept_are_counted_out() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut many = pin!(async {
                let mut all: Vec<_> = (0..100).map(|_| Box::pin(tokio::task::yield_now())).collect();
                std::future::poll_fn(|context| {
                    all.iter_mut().for_each(|one| assert!(one.as_mut().poll(context).is_pending()));
                    Poll::<()>::Pending
                })
                .await
            });
            let (_, stacks) = poll(many.as_mut(), &mut Context::from_waker(Waker::noop()));
            assert_eq!(ends(&stacks).len(), MAX_STACKS);
        });
    }

    #[test]
    fn a_deep_stack_is_cut_and_says_so() {
        fn deep(depth: usize) -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                match depth {
                    0 => tokio::task::yield_now().await,
                    _ => deep(depth - 1).await,
                }
            })
        }
        let mut future = deep(1000);
        let (polled, stacks) = poll(Pin::new(&mut future), &mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert_eq!(ends(&stacks), [CUT]);
        assert_eq!(stacks.words.len(), MAX_FRAMES + 1);
    }

    #[test]
    fn what_panics_leaves_nothing_behind() {
        let mut future = pin!(async { panic!("as ever") });
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _: (Poll<()>, _) = poll(future.as_mut(), &mut Context::from_waker(Waker::noop()));
        }));
        assert!(panicked.is_err());
        assert!(!is_tracing());
    }
}
