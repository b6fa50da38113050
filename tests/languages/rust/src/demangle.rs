//! Mangled names, one a line, as Rust itself demangles them.
use std::io::{stdin, BufRead};

fn main() {
    for line in stdin().lock().lines() {
        println!("{:#}", rustc_demangle::demangle(&line.unwrap()));
    }
}
