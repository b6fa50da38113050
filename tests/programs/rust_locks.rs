//! Rust: two threads in a deadlock of two mutexes, one in a channel, one asleep, one parked, one in a generic closure.
//! Plain std, so that the test can build it with rustc alone.
use std::collections::BTreeMap;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

struct Account {
    balance: i64,
}

#[inline(never)]
fn transfer(from: &Mutex<Account>, to: &Mutex<Account>, amount: i64, both_hold_one: &Barrier) {
    let mut source = from.lock().unwrap();
    both_hold_one.wait();
    let mut target = to.lock().unwrap();
    source.balance -= amount;
    target.balance += amount;
}

trait Worker {
    fn work(&self) -> usize;
}

struct Receives(Mutex<Receiver<String>>);

impl Worker for Receives {
    #[inline(never)]
    fn work(&self) -> usize {
        self.0.lock().unwrap().recv().map(|text| text.len()).unwrap_or(0)
    }
}

#[inline(never)]
fn apply<F: Fn(u64) -> u64>(value: u64, function: F) -> u64 {
    function(value) + 1
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.into()).spawn(body).unwrap();
}

/// The system calls that the threads of `names` are blocked in must all be real ones before the test may look.
fn await_blocked(names: &[&str]) {
    let mut pending: BTreeMap<&str, ()> = names.iter().map(|name| (*name, ())).collect();
    while !pending.is_empty() {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let number = read("syscall").split(' ').next().and_then(|n| n.parse::<i64>().ok());
            // futex and clock_nanosleep on x86-64.
            if matches!(number, Some(202) | Some(230)) {
                pending.remove(read("comm").trim());
            }
        }
        thread::yield_now();
    }
}

fn main() {
    let (savings, checking) = (Arc::new(Mutex::new(Account { balance: 1 })), Arc::new(Mutex::new(Account { balance: 2 })));
    let barrier = Arc::new(Barrier::new(2));
    let (a, b, both) = (savings.clone(), checking.clone(), barrier.clone());
    named("transfer-1", move || transfer(&a, &b, 10, &both));
    let (a, b, both) = (checking, savings, barrier);
    named("transfer-2", move || transfer(&a, &b, 20, &both));

    // Kept, never used: the receiver waits for ever.
    let (_sender, receiver): (Sender<String>, _) = channel();
    let worker: Box<dyn Worker + Send> = Box::new(Receives(Mutex::new(receiver)));
    named("receiver", move || {
        worker.work();
    });
    named("sleeper", || {
        apply(7, |value| {
            thread::sleep(Duration::from_secs(3600));
            value * 2
        });
    });
    named("parked", || loop {
        thread::park();
    });

    await_blocked(&["transfer-1", "transfer-2", "receiver", "sleeper", "parked"]);
    println!("ready");
    loop {
        thread::park();
    }
}
