//! Rust's own locks, whose words do not say who has them. Plain std, so that rustc alone builds it. One mode each, as in the
//! C programs: "ready" when the threads are where they hang.
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, RwLock};
use std::thread;
use std::time::Duration;

/// system calls on x86-64
const FUTEX: i64 = 202;
const CLOCK_NANOSLEEP: i64 = 230;

/// Threads that are past what is no part of their hang.
static PASSED: AtomicI32 = AtomicI32::new(0);

fn pass() {
    PASSED.fetch_add(1, Ordering::Release);
}

fn await_passed(count: i32) {
    while PASSED.load(Ordering::Acquire) < count {
        thread::sleep(Duration::from_micros(100));
    }
}

/// To be joined by the main thread in modes that end in "_joined".
static THREADS: Mutex<Vec<thread::JoinHandle<()>>> = Mutex::new(Vec::new());

fn named(name: &str, body: impl FnOnce() + Send + 'static) {
    THREADS.lock().unwrap().push(thread::Builder::new().name(name.into()).spawn(body).unwrap());
}

/// Returns when the thread of this name is blocked in system call `number`.
fn await_blocked(name: &str, number: i64) {
    loop {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let blocked_in = read("syscall").split(' ').next().and_then(|n| n.parse::<i64>().ok());
            if read("comm").trim() == name && blocked_in == Some(number) {
                return;
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
}

#[inline(never)]
fn transfer(from: &Mutex<i64>, to: &Mutex<i64>, both_hold_one: &Barrier) {
    let mut source = from.lock().unwrap();
    both_hold_one.wait();
    pass();
    let mut target = to.lock().unwrap();
    *source -= 1;
    *target += 1;
}

fn mutex_cycle() {
    let (savings, checking) = (Arc::new(Mutex::new(1)), Arc::new(Mutex::new(2)));
    let barrier = Arc::new(Barrier::new(2));
    let (a, b, both) = (savings.clone(), checking.clone(), barrier.clone());
    named("there", move || transfer(&a, &b, &both));
    named("back", move || transfer(&checking, &savings, &barrier));
    await_passed(2);
    await_blocked("there", FUTEX);
    await_blocked("back", FUTEX);
}

fn mutex_self() {
    named("selfish", || {
        let balance = Mutex::new(1);
        let _first = balance.lock().unwrap();
        let _second = balance.lock().unwrap();
    });
    await_blocked("selfish", FUTEX);
}

fn mutex_owner_asleep() {
    let balance = Arc::new(Mutex::new(1));
    let held = balance.clone();
    named("owner", move || {
        let _guard = held.lock().unwrap();
        thread::sleep(Duration::from_secs(3600));
    });
    await_blocked("owner", CLOCK_NANOSLEEP);
    for name in ["waiter-1", "waiter-2", "waiter-3"] {
        let wanted = balance.clone();
        named(name, move || drop(wanted.lock()));
        await_blocked(name, FUTEX);
    }
}

fn rwlock_writer_asleep() {
    let prices = Arc::new(RwLock::new(1));
    let (held, read, written) = (prices.clone(), prices.clone(), prices);
    named("owner", move || {
        let _guard = held.write().unwrap();
        thread::sleep(Duration::from_secs(3600));
    });
    await_blocked("owner", CLOCK_NANOSLEEP);
    named("reader", move || drop(read.read()));
    named("writer", move || drop(written.write()));
    await_blocked("reader", FUTEX);
    await_blocked("writer", FUTEX);
}

#[inline(never)]
fn price(mine: &RwLock<i64>, other: &RwLock<i64>, both_hold_one: &Barrier) {
    let mut price = mine.write().unwrap();
    both_hold_one.wait();
    pass();
    *price += *other.read().unwrap();
}

fn rwlock_cycle() {
    let (prices, taxes) = (Arc::new(RwLock::new(1)), Arc::new(RwLock::new(2)));
    let barrier = Arc::new(Barrier::new(2));
    let (a, b, both) = (prices.clone(), taxes.clone(), barrier.clone());
    named("prices-first", move || price(&a, &b, &both));
    named("taxes-first", move || price(&taxes, &prices, &barrier));
    await_passed(2);
    await_blocked("prices-first", FUTEX);
    await_blocked("taxes-first", FUTEX);
}

/// Much work of its own for each thread, and a moment of what all share: nothing hangs.
fn busy() {
    let ledger = Arc::new(Mutex::new(0u64));
    for _ in 0..3 {
        let ledger = ledger.clone();
        named("booker", move || {
            for sum in 1u64.. {
                let own = (0..100_000).fold(sum, |own, i| std::hint::black_box(own.wrapping_mul(31) + i));
                *ledger.lock().unwrap() ^= own;
            }
        });
    }
}

static LOADED: Once = Once::new();

#[inline(never)]
fn load() {
    LOADED.call_once(load);
}

fn once_recursion() {
    named("loader", || LOADED.call_once(load));
    await_blocked("loader", FUTEX);
}

/// Receives on a channel to which it alone could send.
fn channel_self() {
    named("selfish", || {
        let (_sender, receiver) = channel::<String>();
        let _ = receiver.recv();
    });
    await_blocked("selfish", FUTEX);
}

/// Sends more than there is room for, and is the one that should receive.
fn channel_full_self() {
    named("selfish", || {
        let (sender, receiver) = sync_channel(1);
        send_two(&sender);
        drop(receiver);
    });
    await_blocked("selfish", FUTEX);
}

#[inline(never)]
fn send_two(sender: &SyncSender<String>) {
    for order in ["first", "second"] {
        sender.send(order.into()).unwrap();
    }
}

/// Each sends to the other, and neither receives.
fn channels_both_full() {
    let (to_stock, of_orders) = sync_channel(1);
    let (to_orders, of_stock) = sync_channel(1);
    for (name, sender, receiver) in [("orders", to_stock, of_stock), ("stock", to_orders, of_orders)] {
        named(name, move || {
            send_two(&sender);
            drop(receiver);
        });
        await_blocked(name, FUTEX);
    }
}

/// A receiver that takes its time: who sends to it waits most of the time, and nothing hangs.
fn channel_slow_receiver() {
    let (sender, receiver) = sync_channel(1);
    for name in ["sender-1", "sender-2", "sender-3"] {
        let sender = sender.clone();
        named(name, move || loop {
            send_two(&sender);
        });
    }
    named("receiver", move || loop {
        drop(receiver.recv());
        thread::sleep(Duration::from_millis(200));
    });
    await_blocked("sender-1", FUTEX);
}

/// A pool as it should be: workers wait for work with a condition variable and on channels, one is parked.
fn idle_workers() {
    let queue: Arc<(Mutex<Vec<u32>>, Condvar)> = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
    for name in ["worker-1", "worker-2"] {
        let queue = queue.clone();
        named(name, move || loop {
            let mut tasks = queue.0.lock().unwrap();
            while tasks.is_empty() {
                tasks = queue.1.wait(tasks).unwrap();
            }
            tasks.pop();
        });
        await_blocked(name, FUTEX);
    }
    let (sender, receiver) = channel::<String>();
    // Kept, so that the receiver goes on waiting.
    std::mem::forget(sender);
    fn receive(receiver: Receiver<String>) {
        while receiver.recv().is_ok() {}
    }
    named("receiver", move || receive(receiver));
    named("parked", || loop {
        thread::park();
    });
    await_blocked("receiver", FUTEX);
    await_blocked("parked", FUTEX);
}

fn main() {
    let modes: [(&str, fn()); 12] = [
        ("busy", busy),
        ("channel_full_self", channel_full_self),
        ("channel_self", channel_self),
        ("channel_slow_receiver", channel_slow_receiver),
        ("channels_both_full", channels_both_full),
        ("idle_workers", idle_workers),
        ("mutex_cycle", mutex_cycle),
        ("mutex_owner_asleep", mutex_owner_asleep),
        ("mutex_self", mutex_self),
        ("once_recursion", once_recursion),
        ("rwlock_cycle", rwlock_cycle),
        ("rwlock_writer_asleep", rwlock_writer_asleep),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mode = wanted.strip_suffix("_joined");
    match modes.iter().find(|(name, _)| *name == mode.unwrap_or(&wanted)) {
        Some((_, start)) => start(),
        None => {
            let names = modes.map(|(name, _)| name).join(" ");
            eprintln!("usage: hang_rust MODE, one of: {names}");
            std::process::exit(2);
        }
    }
    println!("ready");
    let joined = if mode.is_some() { std::mem::take(&mut *THREADS.lock().unwrap()) } else { Vec::new() };
    for thread in joined {
        let _ = thread.join();
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
