//! Tasks of tokio in dumps: where each waits, by the functions that it is in. With the feature `tokio`.
//!
//! A task is known if its future was wrapped: by [`spawn`], or by [`traced`] and a way to spawn of the program's own.
//!
//! ```no_run
//! # async fn serve() {}
//! # async fn main_of_the_program() {
//! stackd::tasks::spawn(serve());
//! tokio::task::spawn_local(stackd::tasks::traced(serve()));
//! # }
//! ```
//!
//! At a dump each task that waits is woken and polled twice by the thread that polls it anyway. The first poll has tokio's
//! leaf futures say where they are, and do nothing; the second is as ever. So nothing stops, and no thread waits for a
//! worker that is blocked.

mod asker;
mod registry;
mod table;
mod task;
mod trace;

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use task::Task;

/// A future that is a task in dumps, as [`traced`] makes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub struct Traced<F> {
    future: F,
    entry: registry::Entry,
}

/// Makes a task of `future` that dumps show, with the type of `future` and the place of this call. It is in the list until it
/// is dropped.
#[track_caller]
pub fn traced<F: Future>(future: F) -> Traced<F> {
    asker::start();
    let task = Task::new(std::any::type_name::<F>(), Location::caller());
    Traced { future, entry: registry::enter(Arc::new(task)) }
}

/// As `tokio::spawn(traced(future))`.
///
/// # Panics
///
/// Outside of a runtime, as `tokio::spawn` does.
#[track_caller]
pub fn spawn<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let future = traced(future);
    let task = Arc::clone(future.entry.task());
    let handle = tokio::spawn(future);
    task.set_id(handle.id());
    handle
}

impl<F: Future> Future for Traced<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // `future` is never moved out of, nor handed out but pinned; `entry` is never pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let mut future = unsafe { Pin::new_unchecked(&mut this.future) };
        let running = this.entry.task().run();
        if let Some(question) = running.question() {
            let (polled, stacks) = trace::poll(future.as_mut(), context);
            running.answer(question, stacks);
            // What is not tokio's does its work in there too.
            if polled.is_ready() {
                return polled;
            }
        }
        // Where the leaves were only traced, they are not told yet to wake this task.
        let polled = future.poll(context);
        if polled.is_pending() {
            running.waits(context.waker());
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Wake, Waker};

    use super::*;

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_task_that_ended_keeps_nothing() {
        let _turn = registry::turn();
        let nobody = Arc::new(Nobody);
        let waker = Waker::from(nobody.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = Box::pin(traced(std::future::pending::<()>()));
        assert!(future.as_mut().poll(&mut context).is_pending());
        let task = Arc::clone(future.entry.task());
        assert_eq!(Arc::strong_count(&nobody), 3);
        drop(future);
        assert_eq!(Arc::strong_count(&nobody), 2);
        assert_eq!(Arc::strong_count(&task), 1);
    }

    #[test]
    fn the_last_waker_is_the_one_that_is_kept() {
        let _turn = registry::turn();
        let (first, second) = (Arc::new(Nobody), Arc::new(Nobody));
        let mut future = pin!(traced(std::future::pending::<()>()));
        for waker in [&first, &second, &second] {
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker.clone().into())).is_pending());
        }
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
    }

    #[test]
    fn a_question_costs_a_poll_more_and_is_answered_once() {
        let _turn = registry::turn();
        let polls = Cell::new(0);
        let mut future = pin!(traced(std::future::poll_fn(|_| {
            polls.set(polls.get() + 1);
            Poll::<()>::Pending
        })));
        let mut poll = |expected| {
            assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(polls.replace(0), expected);
            Arc::clone(future.entry.task())
        };
        let task = poll(1);
        assert_eq!(task.ask(7), task::Asked::Yes);
        assert!(!task.has_answered(7));
        poll(2);
        assert!(task.has_answered(7));
        assert!(task.take_answer(7).is_some());
        poll(1);
        assert_eq!(task.ask(8), task::Asked::Yes);
        assert!(task.take_answer(8).is_none());
        poll(1);
    }

    #[test]
    fn a_question_that_comes_while_it_runs_wakes_it_again() {
        let _turn = registry::turn();
        struct Woken(Cell<u32>);
        unsafe impl Send for Woken {}
        unsafe impl Sync for Woken {}
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.set(self.0.get() + 1);
            }
        }
        let woken = Arc::new(Woken(Cell::new(0)));
        let waker = Waker::from(woken.clone());
        let task: Cell<Option<Arc<Task>>> = Cell::new(None);
        let mut future = pin!(traced(std::future::poll_fn(|_| {
            if let Some(task) = task.take() {
                assert_eq!(task.ask(3), task::Asked::Running);
                assert_ne!(task.thread(), 0);
            }
            Poll::<()>::Pending
        })));
        task.set(Some(Arc::clone(future.entry.task())));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(woken.0.get(), 1);
        let kept = Arc::clone(future.entry.task());
        assert_eq!(kept.thread(), 0);
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(kept.has_answered(3));
        assert_eq!(woken.0.get(), 1);
    }

    #[test]
    fn a_task_that_panics_is_not_said_to_run() {
        let _turn = registry::turn();
        let mut future = Box::pin(traced(async { panic!("as ever") }));
        let task = Arc::clone(future.entry.task());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _: Poll<()> = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }));
        assert!(panicked.is_err());
        assert_eq!(task.thread(), 0);
    }
}
