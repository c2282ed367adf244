//! What Burn 0.22 says: writes models, runs models that others wrote, answers configurations of stores, and trains.
mod models;
mod options;
mod training;

use burn_core as burn;
use burn_core::tensor::Device;
use models::{Layers, Model, Sequences};

fn device() -> Device {
    Device::flex()
}

/// Saves a model with random values as DIR/NAME.bpk, and what it makes of its input as DIR/NAME.json.
fn write<M: Model>(name: &str, dir: &str) {
    let model = M::new(&device()).map(&mut models::Shaken);
    models::save(&model, &format!("{dir}/{name}.bpk"));
    models::note(&model.outputs(), &format!("{dir}/{name}.json"));
}

/// Loads PATH into a model: its output goes to PATH.json, and the model itself to PATH.back.bpk.
fn run<M: Model>(path: &str) {
    let model = models::load(M::new(&device()), path);
    models::note(&model.outputs(), &format!("{path}.json"));
    models::save(&model, &format!("{path}.back.bpk"));
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["write", dir] => {
            write::<Layers>("layers", dir);
            write::<Sequences>("sequences", dir);
        }
        ["run", "layers", path] => run::<Layers>(path),
        ["run", "sequences", path] => run::<Sequences>(path),
        ["options", configurations, answers] => options::answer(configurations, answers),
        ["train", "begin", kind, dir] => training::begin(kind, dir),
        ["train", "go-on", kind, dir] => training::go_on(kind, dir),
        _ => panic!("write DIR | run MODEL PATH | options CONFIGURATIONS ANSWERS | train begin|go-on OPTIMIZER DIR"),
    }
}
