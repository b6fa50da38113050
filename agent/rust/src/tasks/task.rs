//! One task, as those who run it and the one who asks share it.
//!
//! The asker leaves the number of its question and wakes the task, unless a thread runs it. A runner that has run it looks
//! whether a question came meanwhile, and then wakes it itself. So each question is found by a poll that comes after it:
//!
//! | asker                | runner                 |
//! |----------------------|------------------------|
//! | question = n         | thread = 0             |
//! | if thread == 0: wake | if question != 0: wake |
use std::cell::Cell;
use std::os::raw::c_long;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use super::asker;
use super::trace::{self, Stacks};

#[derive(Debug)]
pub struct Task {
    pub name: &'static str,
    pub place: &'static Location<'static>,
    id: OnceLock<tokio::task::Id>, // as soon as tokio has said it
    thread: AtomicI32,             // that runs it; 0: none
    has_run: AtomicBool,
    question: AtomicU32, // to be answered; 0: none
    waker: Mutex<Option<Waker>>,
    answer: Mutex<(u32, Option<Stacks>)>, // to which question
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It was woken, or the thread that runs it will see that it is asked.
    Yes,
    Running,
    NeverRan,
}

/// A panic of the program's own code may have been under way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Task {
    pub fn new(name: &'static str, place: &'static Location<'static>) -> Task {
        Task {
            name,
            place,
            id: OnceLock::new(),
            thread: AtomicI32::new(0),
            has_run: AtomicBool::new(false),
            question: AtomicU32::new(0),
            waker: Mutex::new(None),
            answer: Mutex::new((0, None)),
        }
    }

    /// 0: it has none.
    pub fn id(&self) -> u64 {
        // There is no other way to its number.
        self.id.get().and_then(|id| id.to_string().parse().ok()).unwrap_or(0)
    }

    pub fn set_id(&self, id: tokio::task::Id) {
        let _ = self.id.set(id);
    }

    /// The thread that runs it now.
    pub fn thread(&self) -> i32 {
        self.thread.load(Ordering::SeqCst)
    }

    // Called by the runner

    pub fn run(&self) -> Running<'_> {
        if !self.has_run.load(Ordering::Relaxed) {
            self.has_run.store(true, Ordering::Relaxed);
            if self.id.get().is_none() {
                tokio::task::try_id().into_iter().for_each(|id| self.set_id(id));
            }
        }
        self.thread.store(own_tid(), Ordering::Relaxed);
        Running { task: self }
    }

    // Called by the asker

    pub fn ask(&self, question: u32) -> Asked {
        self.question.store(question, Ordering::SeqCst);
        if self.thread.load(Ordering::SeqCst) != 0 {
            return Asked::Running;
        }
        if !self.wake() && !self.has_run.load(Ordering::Relaxed) {
            return Asked::NeverRan;
        }
        Asked::Yes
    }

    /// False: it has not waited yet.
    fn wake(&self) -> bool {
        // Not with the lock held: the woken runtime may run the task at once.
        let waker = lock(&self.waker).clone();
        waker.map(Waker::wake).is_some()
    }

    pub fn has_answered(&self, question: u32) -> bool {
        lock(&self.answer).0 == question
    }

    /// From now on `question` has no answer. Returns what was answered.
    pub fn take_answer(&self, question: u32) -> Option<Stacks> {
        self.question.store(0, Ordering::Relaxed);
        let mut answer = lock(&self.answer);
        if answer.0 == question {
            answer.1.take()
        } else {
            None
        }
    }

    /// The task is over: it is not to be woken any more, and its waker is not to be kept.
    pub fn end(&self) {
        self.question.store(0, Ordering::Relaxed);
        let waker = lock(&self.waker).take();
        drop(waker);
    }
}

/// A thread runs the task, until this is dropped.
pub struct Running<'a> {
    task: &'a Task,
}

impl Running<'_> {
    /// What is to be answered before the task goes on.
    pub fn question(&self) -> Option<u32> {
        // Inside a task that is being traced this is part of its stack.
        let asked = self.task.question.load(Ordering::Relaxed) != 0 && !trace::is_tracing();
        let question = if asked { self.task.question.swap(0, Ordering::Acquire) } else { 0 };
        (question != 0).then_some(question)
    }

    pub fn answer(&self, question: u32, stacks: Stacks) {
        *lock(&self.task.answer) = (question, Some(stacks));
        asker::on_answer();
    }

    /// The task was left waiting, to be woken by `waker`.
    pub fn waits(&self, waker: &Waker) {
        let mut kept = lock(&self.task.waker);
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            let before = kept.replace(waker.clone());
            drop(kept);
            drop(before);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.task.thread.store(0, Ordering::SeqCst);
        if self.task.question.load(Ordering::SeqCst) != 0 {
            self.task.wake();
        }
    }
}

/// As the kernel calls the calling thread, asked once for each.
fn own_tid() -> i32 {
    extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    const SYS_GETTID: c_long = 186;
    thread_local!(static TID: Cell<i32> = const { Cell::new(0) });
    TID.try_with(|tid| {
        if tid.get() == 0 {
            tid.set(unsafe { syscall(SYS_GETTID) } as i32);
        }
        tid.get()
    })
    .unwrap_or(-1)
}
