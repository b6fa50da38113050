// Rust deaths: the first argument says which, "thread" behind it where. Built with panic=abort. See crash_deaths.c.
use std::hint::black_box;

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
fn panic_now() {
    let empty: Option<u32> = black_box(None);
    println!("{}", empty.unwrap());
}

#[inline(never)]
fn index_out_of_range() {
    let numbers = black_box(vec![1, 2, 3]);
    println!("{}", numbers[black_box(7)]);
}

#[inline(never)]
fn null_pointer() {
    let nowhere: *mut u32 = black_box(std::ptr::null_mut());
    unsafe { std::ptr::write_volatile(nowhere.wrapping_add(6), 1) };
}

/// The agent maps its ring with the first thread.
fn await_ring() {
    std::thread::spawn(|| {}).join().unwrap();
    while !std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:stackd-ring") {
        std::thread::yield_now();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    for word in &arguments[2..] {
        match word.as_str() {
            "await" => await_ring(),
            "told" => {
                println!("ready");
                std::io::stdin().read_line(&mut String::new()).unwrap();
            }
            _ => {}
        }
    }
    let die: fn() = match arguments[1].as_str() {
        "overflow" => overflow,
        "panic" => panic_now,
        "index" => index_out_of_range,
        "null_pointer" => null_pointer,
        other => panic!("{other}?"),
    };
    if arguments.get(2).map(String::as_str) == Some("thread") {
        std::thread::Builder::new().name("dies".into()).spawn(die).unwrap().join().unwrap();
    } else {
        die();
    }
}
