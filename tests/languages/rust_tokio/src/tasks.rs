//! Programs of tokio whose tasks are known. The first argument says which; a line on standard input asks one of its questions.
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use stackd::tasks::{spawn, traced};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot, Mutex, Notify};
use tokio::time::sleep;

const FOR_EVER: Duration = Duration::from_secs(100_000);

fn main() {
    stackd::install().expect("the agent");
    match std::env::args().nth(1).as_deref() {
        Some("idle") => idle(),
        Some("blocked") => blocked(),
        Some("one_worker") => one_worker(),
        Some("blocked_loop") => blocked_loop(),
        Some("idle_loop") => idle_loop(),
        Some("starved") => starved(),
        Some("starved_by_guard") => starved_by_guard(),
        Some("many") => many(),
        Some("churn") => churn(),
        Some("polls") => polls(),
        other => panic!("no such program: {other:?}"),
    }
}

fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_time().build().expect("a runtime")
}

/// Answers each line of standard input, until there is none.
fn serve(mut answer: impl FnMut(&str) -> String) {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        println!("{}", answer(line.trim()));
    }
}

// Tasks that wait, each three functions deep

async fn on_channel(mut queue: mpsc::Receiver<u32>) {
    receive_orders(&mut queue).await;
}

async fn receive_orders(queue: &mut mpsc::Receiver<u32>) {
    next_order(queue).await;
}

async fn next_order(queue: &mut mpsc::Receiver<u32>) {
    queue.recv().await;
}

async fn on_mutex(mutex: Arc<Mutex<u32>>) {
    change_balance(&mutex).await;
}

async fn change_balance(mutex: &Mutex<u32>) {
    *mutex.lock().await += 1;
}

async fn on_sleep() {
    take_a_break().await;
}

async fn take_a_break() {
    sleep(FOR_EVER).await;
}

async fn on_join() {
    let worker = tokio::spawn(sleep(FOR_EVER));
    wait_for_worker(worker).await;
}

async fn wait_for_worker(worker: tokio::task::JoinHandle<()>) {
    let _ = worker.await;
}

async fn on_two(queue: oneshot::Receiver<u32>) {
    tokio::select! {
        _ = first_of_two(queue) => {}
        _ = second_of_two() => {}
    }
}

async fn first_of_two(queue: oneshot::Receiver<u32>) {
    let _ = queue.await;
}

async fn second_of_two() {
    sleep(FOR_EVER).await;
}

/// What `Handle::dump` says: "TASK function function ..." for each stack, innermost first.
async fn peers_words() -> String {
    let dump = Handle::current().dump().await;
    let mut text = String::new();
    for task in dump.tasks().iter() {
        for backtrace in task.trace().resolve_backtraces() {
            let functions: Vec<String> = backtrace
                .frames()
                .flat_map(|frame| frame.symbols().map(|symbol| symbol.name_demangled().unwrap_or("?").replace(' ', "~")))
                .collect();
            text += &format!("{} {};", task.id(), functions.join(" "));
        }
    }
    text
}

fn idle() {
    let runtime = runtime(2);
    let mutex = Arc::new(Mutex::new(0));
    let _held = runtime.block_on(mutex.clone().lock_owned());
    let (_queue, received) = mpsc::channel(1);
    let (_answer, answered) = oneshot::channel();
    runtime.block_on(async {
        spawn(on_channel(received));
        spawn(on_mutex(mutex.clone()));
        spawn(on_sleep());
        spawn(on_join());
        spawn(on_two(answered));
        // Tasks that are not wrapped are not listed.
        tokio::spawn(take_a_break());
        sleep(Duration::from_millis(100)).await;
    });
    serve(|_| runtime.block_on(async { tokio::spawn(peers_words()).await.expect("its words") }));
}

// A worker that is blocked

#[inline(never)]
fn lock_the_ledger(ledger: &StdMutex<u32>) {
    *ledger.lock().expect("the ledger") += 1;
}

async fn blocks_its_worker(ledger: Arc<StdMutex<u32>>, is_there: Arc<AtomicBool>) {
    is_there.store(true, Ordering::SeqCst);
    lock_the_ledger(&ledger);
}

#[derive(Default)]
struct Turns {
    count: AtomicU64,
    longest_us: AtomicU64, // between two of them
}

async fn yields(turns: Arc<Turns>) {
    let mut before = Instant::now();
    loop {
        turns.count.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let now = Instant::now();
        turns.longest_us.fetch_max((now - before).as_micros() as u64, Ordering::Relaxed);
        before = now;
    }
}

impl Turns {
    /// How often a yielding task comes round in a second. Then the longest time that it waited for its turn, in
    /// microseconds, since this was asked last.
    fn words(&self) -> String {
        let longest_us = self.longest_us.swap(0, Ordering::Relaxed);
        let (begin, before) = (Instant::now(), self.count.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(500));
        let turns = (self.count.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
        self.longest_us.store(0, Ordering::Relaxed);
        format!("{turns:.0} {longest_us}")
    }
}

fn blocked() {
    let runtime = runtime(3);
    let ledger = Arc::new(StdMutex::new(0));
    let held = ledger.lock().expect("the ledger");
    let is_there = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(Turns::default());
    let _inside = runtime.enter();
    spawn(on_sleep());
    spawn(blocks_its_worker(ledger.clone(), is_there.clone()));
    while !is_there.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    spawn(yields(turns.clone()));
    serve(|_| turns.words());
    drop(held);
    std::process::exit(0); // the task that yields never ends
}

/// Its one worker is blocked: whatever else there is cannot run.
fn one_worker() {
    let runtime = runtime(1);
    let ledger = Arc::new(StdMutex::new(0));
    let held = ledger.lock().expect("the ledger");
    let is_there = Arc::new(AtomicBool::new(false));
    let _inside = runtime.enter();
    spawn(on_sleep());
    runtime.block_on(async { sleep(Duration::from_millis(100)).await });
    spawn(blocks_its_worker(ledger.clone(), is_there.clone()));
    while !is_there.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    spawn(take_a_break());
    serve(|_| "blocked".into());
    drop(held);
    std::process::exit(0);
}

/// Each worker waits, in a task, for a message that another task would send.
fn starved() {
    let runtime = runtime(2);
    let _inside = runtime.enter();
    let (done, waited) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let done = done.clone();
        spawn(async move {
            let (answer, answered) = std::sync::mpsc::channel::<u32>();
            done.send(answer).expect("main");
            wait_for_answer(&answered);
        });
    }
    let answers: Vec<_> = waited.iter().take(2).collect();
    spawn(async move { answers.iter().for_each(|answer| answer.send(1).expect("a task")) });
    serve(|_| "starved".into());
    std::process::exit(0);
}

#[inline(never)]
fn wait_for_answer(answered: &std::sync::mpsc::Receiver<u32>) {
    answered.recv().expect("an answer");
}

/// A runtime of one thread, which begins with a message of its own that this is so.
fn turn_loop(body: impl FnOnce() -> std::pin::Pin<Box<dyn std::future::Future<Output = ()>>> + Send + 'static) {
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        begun.send(()).expect("main");
        runtime.block_on(body());
    });
    begins.recv().expect("the loop");
    serve(|_| "there".into());
    std::process::exit(0);
}

/// Its thread waits, in a task, for a message that does not come.
fn blocked_loop() {
    let (answer, answered) = std::sync::mpsc::channel::<u32>();
    turn_loop(move || {
        Box::pin(async move {
            spawn(async move { wait_for_answer(&answered) }).await.expect("a task");
        })
    });
    drop(answer);
}

fn idle_loop() {
    turn_loop(|| Box::pin(on_sleep()));
}

/// A task sleeps with the guard of a lock of std, and each worker waits for the lock.
fn starved_by_guard() {
    let runtime = runtime(2);
    let ledger = Arc::new(StdMutex::new(0));
    let _inside = runtime.enter();
    let (kept, keeps) = std::sync::mpsc::channel();
    let sleeper = Sleeper { ledger: ledger.clone(), kept };
    runtime.spawn(sleeper.keep());
    keeps.recv().expect("the guard");
    let are_there: Vec<_> = (0..2).map(|_| Arc::new(AtomicBool::new(false))).collect();
    for is_there in &are_there {
        spawn(blocks_its_worker(ledger.clone(), is_there.clone()));
    }
    while !are_there.iter().all(|is_there| is_there.load(Ordering::SeqCst)) {
        std::thread::yield_now();
    }
    serve(|_| "starved".into());
    std::process::exit(0);
}

struct Sleeper {
    ledger: Arc<StdMutex<u32>>,
    kept: std::sync::mpsc::Sender<()>,
}

/// A future may go from thread to thread, and the guard may not: by force, as with a runtime of one thread.
struct AnyThread<T>(T);
unsafe impl<T> Send for AnyThread<T> {}

impl Sleeper {
    async fn keep(self) {
        let guard = AnyThread(self.ledger.lock().expect("the ledger"));
        self.kept.send(()).expect("main");
        sleep(FOR_EVER).await;
        drop(guard);
    }
}

// Many

fn many() {
    let runtime = runtime(2);
    let count: usize = std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let _inside = runtime.enter();
    let turns = Arc::new(Turns::default());
    for _ in 0..count {
        spawn(on_sleep());
    }
    spawn(yields(turns.clone()));
    std::thread::sleep(Duration::from_millis(500));
    serve(|_| turns.words());
    std::process::exit(0);
}

/// Tasks that live for a moment only, and count what they did.
async fn comes_and_goes(number: u64, done: Arc<AtomicU64>, notify: Arc<Notify>) {
    let (give, taken) = oneshot::channel();
    let other = spawn(async move {
        sleep(Duration::from_micros(number % 500)).await;
        let _ = give.send(number);
    });
    tokio::select! {
        biased;
        got = taken => assert_eq!(got, Ok(number)),
        _ = sleep(FOR_EVER) => unreachable!(),
    }
    other.await.expect("its task");
    if number % 3 == 0 {
        // Cancelled while it waits.
        spawn(sleep(FOR_EVER)).abort();
    }
    done.fetch_add(1, Ordering::Relaxed);
    notify.notify_one();
}

fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// "TASKS_DONE VMRSS_KIB FDS"
fn churn() {
    let runtime = runtime(2);
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    runtime.spawn(traced(async move {
        let notify = Arc::new(Notify::new());
        for number in 0.. {
            spawn(comes_and_goes(number, done.clone(), notify.clone()));
            if number >= 100 {
                notify.notified().await;
            }
        }
    }));
    serve(|_| {
        let fds = std::fs::read_dir("/proc/self/fd").expect("fds").count();
        format!("{} {} {}", counted.load(Ordering::Relaxed), resident_kib(), fds)
    });
    std::process::exit(0);
}

/// What wrapping costs: nanoseconds of one turn of a task that yields, plain and wrapped, and of making and ending one.
fn polls() {
    const TURNS: u32 = 1_000_000;
    async fn turns() {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let measure = |wrapped: bool| {
        let begin = Instant::now();
        runtime.block_on(async move {
            if wrapped {
                spawn(turns()).await.expect("its turns")
            } else {
                tokio::spawn(turns()).await.expect("its turns")
            }
        });
        begin.elapsed().as_nanos() as f64 / f64::from(TURNS)
    };
    let make = |wrapped: bool| {
        let begin = Instant::now();
        runtime.block_on(async move {
            for _ in 0..TURNS {
                if wrapped {
                    spawn(async {}).await.expect("it")
                } else {
                    tokio::spawn(async {}).await.expect("it")
                }
            }
        });
        begin.elapsed().as_nanos() as f64 / f64::from(TURNS)
    };
    for _ in 0..5 {
        println!(
            "turn: {:.1} plain, {:.1} wrapped; task: {:.1} plain, {:.1} wrapped",
            measure(false),
            measure(true),
            make(false),
            make(true)
        );
    }
    let before = resident_kib();
    let _inside = runtime.enter();
    let kept: Vec<_> = (0..100_000).map(|_| traced(sleep(FOR_EVER))).collect();
    println!("memory: {} bytes a task", (resident_kib() - before) * 1024 / kept.len() as u64);
}
