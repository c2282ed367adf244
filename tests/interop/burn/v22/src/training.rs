//! Training that goes on elsewhere: models and records of optimizers, and the step after them.
use crate::burn;
use crate::models::{load, save, wave};
use burn_core::module::Module;
use burn_core::tensor::activation::relu;
use burn_core::tensor::{Device, Tensor};
use burn_nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn_optim::decay::WeightDecayConfig;
use burn_optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer};

#[derive(Module, Debug)]
struct Small {
    fc: Linear,
    norm: LayerNorm,
    out: Linear,
}

fn new() -> Small {
    let device = device();
    Small {
        fc: LinearConfig::new(3, 4).init(&device),
        norm: LayerNormConfig::new(4).init(&device),
        out: LinearConfig::new(4, 2).init(&device),
    }
}

fn device() -> Device {
    crate::device().autodiff()
}

fn optimizer(kind: &str) -> ModuleOptimizer {
    match kind {
        "adam" => AdamConfig::new().with_epsilon(1e-8).init(),
        "adam-decay" => AdamConfig::new()
            .with_epsilon(1e-8)
            .with_weight_decay(Some(WeightDecayConfig::new(0.1)))
            .init(),
        "adam-amsgrad" => AdamConfig::new()
            .with_epsilon(1e-8)
            .with_amsgrad(true)
            .init(),
        "adamw" => AdamWConfig::new()
            .with_epsilon(1e-8)
            .with_weight_decay(0.1)
            .init(),
        other => panic!("optimizer {other}"),
    }
}

fn step(model: Small, optimizer: &mut ModuleOptimizer) -> Small {
    let x: Tensor<2> = wave([4, 3], &device());
    let y = model
        .out
        .forward(relu(model.norm.forward(model.fc.forward(x))));
    let grads = GradientsParams::from_grads(y.powi_scalar(2).sum().backward(), &model);
    optimizer.step(1e-2, model, grads)
}

/// Three steps; saves model and optimizer, takes another step and saves the model as `next.bpk`.
pub fn begin(kind: &str, dir: &str) {
    let mut optimizer = optimizer(kind);
    let mut model = new();
    for _ in 0..3 {
        model = step(model, &mut optimizer);
    }
    save(&model.valid(), &format!("{dir}/model.bpk"));
    optimizer.save(format!("{dir}/optimizer.bpk")).unwrap();
    save(
        &step(model, &mut optimizer).valid(),
        &format!("{dir}/next.bpk"),
    );
}

/// Loads model and optimizer, takes a step and saves the model as `next.bpk`.
pub fn go_on(kind: &str, dir: &str) {
    let model = load(new(), &format!("{dir}/model.bpk"));
    let mut optimizer = optimizer(kind)
        .load(format!("{dir}/optimizer.bpk"))
        .unwrap();
    save(
        &step(model, &mut optimizer).valid(),
        &format!("{dir}/next.bpk"),
    );
    optimizer.save(format!("{dir}/optimizer_next.bpk")).unwrap();
}
