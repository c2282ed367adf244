//! What Burn 0.20 says: writes models, and runs models that others wrote.
mod models;

use burn_core as burn;
use models::{Layers, Model, Sequences};

pub type B = burn_ndarray::NdArray;

fn device() -> burn_ndarray::NdArrayDevice {
    Default::default()
}

/// Saves a model with random values as DIR/NAME.bpk, and what it makes of its input as DIR/NAME.json.
fn write<M: Model>(name: &str, dir: &str) {
    let model = M::new().map(&mut models::Shaken);
    models::save(&model, &format!("{dir}/{name}.bpk"));
    models::note(&model.outputs(), &format!("{dir}/{name}.json"));
}

/// Loads PATH into a model: its output goes to PATH.json, and the model itself to PATH.back.bpk.
fn run<M: Model>(path: &str) {
    let model = models::load(M::new(), path);
    models::note(&model.outputs(), &format!("{path}.json"));
    models::save(&model, &format!("{path}.back.bpk"));
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["write", dir] => {
            write::<Layers<B>>("layers", dir);
            write::<Sequences<B>>("sequences", dir);
        }
        ["run", "layers", path] => run::<Layers<B>>(path),
        ["run", "sequences", path] => run::<Sequences<B>>(path),
        _ => panic!("write DIR | run MODEL PATH"),
    }
}
