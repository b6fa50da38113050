//! A Rust program in the situation that its first argument names, with the agent linked in.
//!
//! It says "ready" when its threads are where they should be. Those that die await the ring before, so that the daemon has
//! the crash at once.
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::stdin;
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    stackd::install().expect("install");
    match words[..] {
        ["locks"] => locks(),
        ["names"] => names(),
        ["busy"] => busy(),
        ["beats"] => beats(),
        ["asks"] => asks(),
        ["panics"] => panics(),
        ["dies", how, ref rest @ ..] => dies(how, rest.contains(&"thread"), rest.contains(&"alone")),
        _ => panic!("{words:?}?"),
    }
}

// Threads that wait

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

fn named(name: &str, body: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.into()).spawn(body).unwrap();
}

/// Two threads, each of which wants the mutex that the other has.
fn locks() {
    let (savings, checking) = (Arc::new(Mutex::new(Account { balance: 1 })), Arc::new(Mutex::new(Account { balance: 2 })));
    let barrier = Arc::new(Barrier::new(2));
    let (a, b, both) = (savings.clone(), checking.clone(), barrier.clone());
    named("transfer-1", move || transfer(&a, &b, 10, &both));
    let (a, b, both) = (checking, savings, barrier);
    named("transfer-2", move || transfer(&a, &b, 20, &both));
    ready_when_asleep(&["transfer-1", "transfer-2"]);
    park_for_ever()
}

trait Worker {
    fn work(&self) -> usize;
}

struct Receives<T>(Mutex<Receiver<T>>);

impl<T: AsRef<str>> Worker for Receives<T> {
    #[inline(never)]
    fn work(&self) -> usize {
        self.0.lock().unwrap().recv().map(|text| text.as_ref().len()).unwrap_or(0)
    }
}

#[inline(never)]
fn apply<const LEVEL: usize, F: Fn(u64) -> u64>(value: u64, function: F) -> u64 {
    function(value + LEVEL as u64) + 1
}

mod naïve {
    #[inline(never)]
    pub fn größe(wait: &dyn Fn()) {
        wait();
        super::black_box(());
    }
}

/// Names that the two manglings write differently: generic ones, of a trait's implementation, closures, not ASCII.
fn names() {
    // Kept, never used: the receiver waits for ever.
    let (_sender, receiver) = channel::<String>();
    let worker: Box<dyn Worker + Send> = Box::new(Receives(Mutex::new(receiver)));
    named("receiver", move || {
        worker.work();
    });
    named("closure", || {
        apply::<7, _>(1, |value| {
            thread::sleep(Duration::from_secs(3600));
            value * 2
        });
    });
    named("umlaut", || naïve::größe(&|| thread::sleep(Duration::from_secs(3600))));
    thread::spawn(|| {
        stackd::name_thread("größter Faden der Welt").unwrap();
        thread::sleep(Duration::from_secs(3600));
    });
    ready_when_asleep(&["receiver", "closure", "umlaut", "größter Faden"]);
    park_for_ever()
}

/// Until the kernel has the threads of these names in a call that waits: futex or clock_nanosleep on x86-64.
fn ready_when_asleep(names: &[&str]) {
    let mut awake: BTreeMap<&str, ()> = names.iter().map(|name| (*name, ())).collect();
    while !awake.is_empty() {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let number = read("syscall").split(' ').next().and_then(|n| n.parse::<i64>().ok());
            if matches!(number, Some(202) | Some(230)) {
                awake.remove(read("comm").trim());
            }
        }
        thread::yield_now();
    }
    println!("ready");
}

fn park_for_ever() -> ! {
    loop {
        thread::park();
    }
}

// What the package offers

fn await_line() -> bool {
    stdin().read_line(&mut String::new()).unwrap() > 0
}

/// Beats, waits for a line unwatched, beats, and then is stuck.
fn beats() {
    stackd::set_process_name("rust-beats").unwrap();
    let heartbeat = stackd::heartbeat("orders", Duration::from_millis(500));
    heartbeat.beat();
    println!("ready");
    heartbeat.suspended(await_line);
    stuck_in_the_loop();
}

#[inline(never)]
fn stuck_in_the_loop() {
    await_line();
    black_box(());
}

/// A dump for each line.
fn asks() {
    println!("ready");
    while await_line() {
        println!("{:?}", stackd::dump_now(Duration::from_secs(60)));
    }
}

/// Panics in a thread, which is caught by its end; then goes on. The message is what must not be found anywhere.
fn panics() {
    std::panic::set_hook(Box::new(|_| eprintln!("the program's own hook")));
    stackd::install_panic_hook();
    println!("ready");
    await_line();
    let result = thread::Builder::new().name("panics".into()).spawn(|| takes_order(black_box(None))).unwrap().join();
    println!("{}", if result.is_err() { "caught" } else { "no panic" });
    await_line();
}

// A thread that runs for ever

fn busy() {
    thread::Builder::new().name("busy".into()).spawn(spins).unwrap();
    println!("ready");
    await_line();
}

#[inline(never)]
fn spins() {
    for turn in 0u64.. {
        black_box(turn);
    }
}

#[inline(never)]
fn takes_order(order: Option<u32>) -> u32 {
    let secret = std::env::var("SECRET").unwrap_or_default();
    order.unwrap_or_else(|| panic!("no order for {secret}"))
}

// Deaths

struct Tree {
    left: Option<Box<Tree>>,
}

#[inline(never)]
#[allow(unconditional_recursion)]
fn depth(tree: *const Tree, level: u64) -> u64 {
    let mut frame = [level; 16];
    black_box(&mut frame);
    // The tree is its own child.
    depth(tree, level + 1) + frame[3]
}

#[inline(never)]
fn overflow() {
    let tree = Tree { left: None };
    println!("{} {}", depth(black_box(&tree), 1), tree.left.is_some());
}

#[inline(never)]
fn unwrap_none() {
    let empty: Option<u32> = black_box(None);
    println!("{}", empty.unwrap());
}

#[inline(never)]
fn null_pointer() {
    let nowhere: *mut u32 = black_box(std::ptr::null_mut());
    unsafe { std::ptr::write_volatile(nowhere.wrapping_add(6), 1) };
}

#[inline(never)]
fn fill_memory() {
    let bytes: Vec<u8> = Vec::with_capacity(black_box(isize::MAX as usize / 2));
    println!("{:p}", black_box(&bytes).as_ptr());
}

/// `alone`: without a daemon to wait for.
fn dies(how: &str, in_thread: bool, alone: bool) {
    stackd::install_panic_hook();
    while !alone && !agent_serves() {
        thread::yield_now();
    }
    let die: fn() = match how {
        "overflow" => overflow,
        "panic" => unwrap_none,
        "null_pointer" => null_pointer,
        "memory" => fill_memory,
        other => panic!("{other}?"),
    };
    if in_thread {
        let _ = thread::Builder::new().name("dies".into()).spawn(die).unwrap().join();
    } else {
        die();
    }
}

/// Whether the agent has its ring, and waits for the daemon, in ppoll().
fn agent_serves() -> bool {
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:stackd-ring");
    mapped
        && std::fs::read_dir("/proc/self/task").unwrap().flatten().any(|task| {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            read("comm") == "stackd-agent\n" && read("syscall").starts_with("271 ")
        })
}
