//! Locks of parking_lot: a byte each, with the threads that wait in a table of the crate's own. Two threads in a deadlock, and
//! one that waits on a condition variable. With "locks_joined" the main thread waits for them.
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// Threads that are past what is no part of their hang.
static PASSED: AtomicI32 = AtomicI32::new(0);

#[inline(never)]
fn transfer(from: &Mutex<i64>, to: &Mutex<i64>, both_hold_one: &Barrier) {
    let mut source = from.lock();
    both_hold_one.wait();
    PASSED.fetch_add(1, Ordering::Release);
    let mut target = to.lock();
    *source -= 1;
    *target += 1;
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(body).unwrap()
}

/// Returns when the thread of this name is blocked in futex().
fn await_blocked(name: &str) {
    loop {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            if read("comm").trim() == name && read("syscall").starts_with("202 ") {
                return;
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn main() {
    let (savings, checking) = (Arc::new(Mutex::new(1)), Arc::new(Mutex::new(2)));
    let barrier = Arc::new(Barrier::new(2));
    let (a, b, both) = (savings.clone(), checking.clone(), barrier.clone());
    let there = named("there", move || transfer(&a, &b, &both));
    named("back", move || transfer(&checking, &savings, &barrier));
    named("consumer", || {
        let (tasks, work_came) = (Mutex::new(()), Condvar::new());
        work_came.wait(&mut tasks.lock());
    });
    while PASSED.load(Ordering::Acquire) < 2 {
        thread::sleep(Duration::from_micros(100));
    }
    for name in ["there", "back", "consumer"] {
        await_blocked(name);
    }
    println!("ready");
    if std::env::args().any(|mode| mode == "locks_joined") {
        let _ = there.join();
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
