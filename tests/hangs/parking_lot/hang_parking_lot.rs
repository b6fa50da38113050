//! Locks of parking_lot: a byte each, with the threads that wait in a table of the crate's own. And channels of crossbeam.
//! In modes that end in "_joined" the main thread waits for the first thread.
use parking_lot::{Condvar, Mutex, RwLock};
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

/// Two threads in a deadlock, and one that waits on a condition variable.
fn locks() -> thread::JoinHandle<()> {
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
    there
}

/// The writer waits for a reader, which waits behind the writer.
fn read_again() -> thread::JoinHandle<()> {
    let prices = Arc::new(RwLock::new(1));
    let (read, written) = (prices.clone(), prices);
    let (begin, begun) = std::sync::mpsc::channel();
    let reader = named("reader", move || {
        let price = read.read();
        begun.recv().unwrap();
        PASSED.fetch_add(1, Ordering::Release);
        let again = read.read();
        assert_eq!(*price, *again);
    });
    await_blocked("reader");
    named("writer", move || *written.write() += 1);
    await_blocked("writer");
    begin.send(()).unwrap();
    while PASSED.load(Ordering::Acquire) < 1 {
        thread::sleep(Duration::from_micros(100));
    }
    await_blocked("reader");
    reader
}

#[inline(never)]
fn send_two(sender: &crossbeam_channel::Sender<i64>) {
    for order in [1, 2] {
        sender.send(order).unwrap();
    }
}

/// Each sends to the other, and neither receives.
fn channels_both_full() -> thread::JoinHandle<()> {
    let (to_stock, of_orders) = crossbeam_channel::bounded(1);
    let (to_orders, of_stock) = crossbeam_channel::bounded(1);
    let start = |name: &str, sender, receiver: crossbeam_channel::Receiver<i64>| {
        let thread = named(name, move || {
            send_two(&sender);
            drop(receiver);
        });
        await_blocked(name);
        thread
    };
    let orders = start("orders", to_stock, of_stock);
    start("stock", to_orders, of_orders);
    orders
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let first = match wanted.strip_suffix("_joined").unwrap_or(&wanted) {
        "locks" => locks(),
        "read_again" => read_again(),
        "channels_both_full" => channels_both_full(),
        other => panic!("no such mode: {other}"),
    };
    println!("ready");
    if wanted.ends_with("_joined") {
        let _ = first.join();
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
