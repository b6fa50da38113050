//! The thread that asks the tasks at a dump, and what the agent's own thread needs of it.
//!
//! Wakers are other people's code: one that never returns must not keep the agent from its work. So the agent's thread only
//! leaves a question here, and waits for the answer as long as it may.
use std::os::raw::{c_uint, c_ulong, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::registry;
use super::table::{State, Table};
use super::task::{Asked, Task};
use crate::agent::{agent, GiveTasks};

/// Limit of tasks in a table. More are counted.
const MAX_TASKS: usize = 10_000;
/// Less than the agent takes (STACKD_MAX_TASK_TABLE_BYTES).
const MAX_TABLE_BYTES: usize = 15 << 20;
/// Number of tasks that are awaited at a time. The runtime has no more than these to run for a dump between two of its own.
const FIRST_WINDOW: usize = 64;
/// Where none of them answers for so long, their workers may be blocked, and others are asked too.
const STALL: Duration = Duration::from_millis(2);
/// Behind the time that the tasks have: to write down what they said takes 10 ms of CPU time for 10,000. As
/// stackd_task_source_fn in stackd/agent.h has it.
const WRITING: Duration = Duration::from_millis(100);

struct Desk {
    question: u32, // 0: none yet
    until: Option<Instant>,
    busy: bool,
    table: Option<Vec<u8>>,
}

static DESK: Mutex<Desk> = Mutex::new(Desk { question: 0, until: None, busy: false, table: None });
static CHANGED: Condvar = Condvar::new();
static ASKER: OnceLock<Thread> = OnceLock::new();
static AWAITS_ANSWERS: AtomicBool = AtomicBool::new(false);

fn desk() -> MutexGuard<'static, Desk> {
    DESK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With the first task. Where the agent is switched off, or there is no thread to be had, tasks are not asked.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if unsafe { (agent().set_task_source)(None) } != 0 {
            return;
        }
        let Ok(asker) = thread::Builder::new().name("stackd-tasks".into()).stack_size(256 << 10).spawn(serve) else {
            return;
        };
        let _ = ASKER.set(asker.thread().clone());
        unsafe { (agent().set_task_source)(Some(describe)) };
    });
}

/// A task has answered. Any thread.
pub fn on_answer() {
    if AWAITS_ANSWERS.load(Ordering::Relaxed) {
        if let Some(asker) = ASKER.get() {
            asker.unpark();
        }
    }
}

/// Called by the agent's thread, which has a small stack: nothing here runs any code of the program's.
unsafe extern "C" fn describe(limit_ms: c_uint, give: GiveTasks, receiver: *mut c_void) {
    let until = Instant::now() + Duration::from_millis(limit_ms.into());
    let end = until + WRITING;
    let mut desk = desk();
    // A program's waker has not returned since the last dump.
    if desk.busy {
        return;
    }
    desk.busy = true;
    desk.table = None;
    desk.question = desk.question.checked_add(1).unwrap_or(1);
    desk.until = Some(until);
    CHANGED.notify_all();
    while desk.table.is_none() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        desk = CHANGED.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    let table = desk.table.take().unwrap_or_default();
    drop(desk);
    if !table.is_empty() {
        give(receiver, table.as_ptr().cast(), table.len() as c_ulong);
    }
}

fn serve() {
    let mut served = 0;
    loop {
        let (question, until) = {
            let mut desk = desk();
            while desk.question == served {
                desk = CHANGED.wait(desk).unwrap_or_else(PoisonError::into_inner);
            }
            (desk.question, desk.until.unwrap_or_else(Instant::now))
        };
        served = question;
        // A waker may panic; then this dump has no tasks, and the next one has.
        let table = catch_unwind(AssertUnwindSafe(|| ask_all(question, until))).unwrap_or_default();
        let mut desk = desk();
        desk.busy = false;
        desk.table = Some(table);
        CHANGED.notify_all();
    }
}

fn ask_all(question: u32, until: Instant) -> Vec<u8> {
    let (tasks, there_are) = registry::list(MAX_TASKS);
    AWAITS_ANSWERS.store(true, Ordering::Relaxed);
    let asked = ask(&tasks, question, until);
    AWAITS_ANSWERS.store(false, Ordering::Relaxed);
    let mut table = Table::new(there_are);
    for (i, task) in tasks.iter().enumerate() {
        let stacks = task.take_answer(question);
        if table.len() > MAX_TABLE_BYTES {
            continue; // the others are to be told that they are asked no more
        }
        let thread = task.thread();
        let state = match (&stacks, asked.get(i)) {
            (Some(_), _) => State::Waits,
            (None, Some(Asked::NeverRan)) => State::NeverRan,
            (None, _) if thread != 0 => State::Runs,
            (None, Some(_)) => State::IsDue,
            (None, None) => State::NotAsked,
        };
        let runs_on = if state == State::Runs { thread } else { 0 };
        table.add(task, state, runs_on, &stacks.unwrap_or_default());
    }
    table.into_bytes()
}

/// What became of the question to each task, from the first on; those for which there was no time are not in it.
fn ask(tasks: &[Arc<Task>], question: u32, until: Instant) -> Vec<Asked> {
    let mut asked = Vec::with_capacity(tasks.len());
    let mut awaited: Vec<usize> = Vec::new();
    let mut window = FIRST_WINDOW;
    let mut last_answer = Instant::now();
    loop {
        let before = awaited.len();
        awaited.retain(|&i| !tasks[i].has_answered(question));
        let now = Instant::now();
        if awaited.len() < before {
            last_answer = now;
        }
        if now >= until || (awaited.is_empty() && asked.len() == tasks.len()) {
            return asked;
        }
        if now >= last_answer + STALL {
            window = window.saturating_mul(2);
            last_answer = now;
        }
        while awaited.len() < window && asked.len() < tasks.len() {
            let answer = tasks[asked.len()].ask(question);
            if answer != Asked::NeverRan {
                awaited.push(asked.len());
            }
            asked.push(answer);
        }
        // Answers, too, end it early.
        thread::park_timeout(STALL.min(until - now));
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Wake, Waker};

    use super::super::registry::turn;
    use super::super::traced;
    use super::*;

    unsafe extern "C" fn keep(receiver: *mut c_void, bytes: *const c_void, size: c_ulong) {
        *receiver.cast::<Vec<u8>>() = std::slice::from_raw_parts(bytes.cast::<u8>(), size as usize).to_vec();
    }

    fn described(limit_ms: c_uint) -> Vec<u8> {
        let mut table: Vec<u8> = Vec::new();
        unsafe { describe(limit_ms, keep, (&mut table as *mut Vec<u8>).cast()) };
        table
    }

    /// The states of the tasks whose name has `part` in it.
    fn states(table: &[u8], part: &str) -> Vec<u32> {
        let number = |at: usize| u32::from_ne_bytes(table[at..at + 4].try_into().unwrap());
        let mut found = Vec::new();
        let mut at = 48;
        while at < table.len() {
            let name = at + 32 + 8 * number(at + 20) as usize;
            if String::from_utf8_lossy(&table[name..name + number(at + 24) as usize]).contains(part) {
                found.push(number(at + 4));
            }
            at += number(at) as usize;
        }
        found
    }

    /// A runtime on a thread of its own, which ends with this.
    struct InBackground {
        handle: tokio::runtime::Handle,
        stop: tokio::task::AbortHandle,
        thread: Option<thread::JoinHandle<()>>,
    }

    impl InBackground {
        fn start() -> InBackground {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let handle = runtime.handle().clone();
            let life = handle.spawn(std::future::pending::<()>());
            let stop = life.abort_handle();
            let thread = thread::spawn(move || drop(runtime.block_on(life)));
            InBackground { handle, stop, thread: Some(thread) }
        }

        fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
            drop(self.handle.spawn(future));
        }
    }

    impl Drop for InBackground {
        fn drop(&mut self) {
            self.stop.abort();
            let _ = self.thread.take().map(thread::JoinHandle::join);
        }
    }

    #[test]
    fn a_task_that_waits_is_polled_by_its_own_runtime_and_says_where() {
        let _turn = turn();
        async fn waits_for_ever() {
            let _ = tokio::spawn(std::future::pending::<()>()).await;
        }
        let runtime = InBackground::start();
        let (there, is_there) = std::sync::mpsc::channel();
        runtime.spawn(traced(async move {
            there.send(()).unwrap();
            waits_for_ever().await
        }));
        is_there.recv().unwrap();
        let table = described(10_000);
        assert_eq!(states(&table, "a_task_that_waits_is_polled"), [State::Waits as u32]);
    }

    #[test]
    fn a_task_that_nobody_polls_is_due_and_one_that_nobody_polled_never_ran() {
        let _turn = turn();
        async fn lonely() {
            std::future::pending::<()>().await;
        }
        let mut polled = pin!(traced(lonely()));
        let never = traced(lonely());
        assert!(polled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let begin = Instant::now();
        let table = described(60);
        assert!(begin.elapsed() < Duration::from_millis(2000));
        let mut found = states(&table, "lonely");
        found.sort_unstable();
        assert_eq!(found, [State::IsDue as u32, State::NeverRan as u32]);
        drop(never);
        assert_eq!(states(&described(60), "lonely").len(), 1);
    }

    #[test]
    fn a_task_that_runs_all_the_time_is_said_to_run() {
        let _turn = turn();
        struct Runs<'a>(&'a AtomicUsize);
        impl Future for Runs<'_> {
            type Output = ();
            fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
                self.0.store(1, Ordering::SeqCst);
                while self.0.load(Ordering::SeqCst) == 1 {
                    thread::yield_now();
                }
                Poll::Ready(())
            }
        }
        let stage = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut runs = pin!(traced(Runs(&stage)));
                assert!(runs.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
            });
            while stage.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            assert_eq!(states(&described(60), "Runs"), [State::Runs as u32]);
            stage.store(2, Ordering::SeqCst);
        });
    }

    #[test]
    fn a_waker_that_panics_or_stays_away_costs_one_table() {
        let _turn = turn();
        struct Wakes(Mutex<()>, bool);
        impl Wake for Wakes {
            fn wake(self: Arc<Self>) {
                if self.1 {
                    panic!("of a test: as it should");
                }
                drop(self.0.lock());
            }
        }
        async fn strange() {
            std::future::pending::<()>().await;
        }
        {
            let waker = Waker::from(Arc::new(Wakes(Mutex::new(()), true)));
            let mut future = pin!(traced(strange()));
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(described(10_000).is_empty());
        }
        assert!(!described(10_000).is_empty());

        let wakes = Arc::new(Wakes(Mutex::new(()), false));
        let mut future = Box::pin(traced(strange()));
        assert!(future.as_mut().poll(&mut Context::from_waker(&wakes.clone().into())).is_pending());
        let stays = wakes.0.lock().unwrap();
        assert!(described(20).is_empty());
        let begin = Instant::now();
        assert!(described(10_000).is_empty());
        assert!(begin.elapsed() < Duration::from_secs(5), "nobody waits for it a second time");
        drop(stays);
        drop(future);
        let mut desk = desk();
        while desk.busy {
            desk = CHANGED.wait(desk).unwrap();
        }
    }

    #[test]
    fn tasks_that_do_not_answer_keep_no_place_for_ever() {
        let _turn = turn();
        async fn stuck() {
            std::future::pending::<()>().await;
        }
        let stuck: Vec<_> = (0..4 * FIRST_WINDOW)
            .map(|_| {
                let mut future = Box::pin(traced(stuck()));
                assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                future
            })
            .collect();
        let runtime = InBackground::start();
        let polled = Arc::new(AtomicUsize::new(0));
        for _ in 0..16 {
            let polled = polled.clone();
            runtime.spawn(traced(async move {
                polled.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await
            }));
        }
        while polled.load(Ordering::SeqCst) < 16 {
            thread::yield_now();
        }
        let found = states(&described(1000), "keep_no_place");
        let count = |state: State| found.iter().filter(|&&found| found == state as u32).count();
        assert_eq!((count(State::Waits), count(State::IsDue)), (16, stuck.len()));
    }

    #[test]
    fn every_task_of_many_is_asked() {
        let _turn = turn();
        async fn one_of_many() {
            std::future::pending::<()>().await;
        }
        let runtime = InBackground::start();
        let polled = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let polled = polled.clone();
            runtime.spawn(traced(async move {
                polled.fetch_add(1, Ordering::SeqCst);
                one_of_many().await
            }));
        }
        while polled.load(Ordering::SeqCst) < 1000 {
            thread::yield_now();
        }
        let found = states(&described(10_000), "every_task_of_many");
        assert_eq!(found.len(), 1000);
        assert!(found.iter().all(|&state| state == State::Waits as u32));
    }
}
