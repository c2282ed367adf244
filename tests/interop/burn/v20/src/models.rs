//! The models that are exchanged, and how they are saved and loaded.
use crate::{burn, device, B};
use burn_core::module::{Module, ModuleMapper, Param};
use burn_core::tensor::activation::relu;
use burn_core::tensor::backend::Backend;
use burn_core::tensor::{Distribution, Int, Tensor, TensorData};
use burn_nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn_nn::conv::{Conv2d, Conv2dConfig};
use burn_nn::gru::{Gru, GruConfig};
use burn_nn::*;
use burn_store::{BurnpackStore, ModuleStore, SafetensorsStore};

pub trait Model: Module<B> + 'static {
    fn new() -> Self;
    fn outputs(&self) -> Vec<f32>;
}

/// sin(0.37 i) for i = 0, 1, ...
fn wave<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (0.37 * i as f64).sin() as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), &device())
}

fn values<const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec::<f32>().unwrap()
}

pub fn note(values: &[f32], path: &str) {
    std::fs::write(path, serde_json::to_string(values).unwrap()).unwrap();
}

pub fn save<M: Module<B> + 'static>(model: &M, path: &str) {
    BurnpackStore::from_file(path)
        .overwrite(true)
        .collect_from::<B, M>(model)
        .unwrap();
}

pub fn load<M: Module<B> + 'static>(mut model: M, path: &str) -> M {
    if path.ends_with(".bpk") {
        BurnpackStore::from_file(path)
            .apply_to::<B, M>(&mut model)
            .unwrap();
    } else {
        SafetensorsStore::from_file(path)
            .apply_to::<B, M>(&mut model)
            .unwrap();
    }
    model
}

/// Gives every parameter random values, those that begin as zeros and ones as well.
pub struct Shaken;

impl<B: Backend> ModuleMapper<B> for Shaken {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| tensor.clone() + tensor.random_like(Distribution::Uniform(-0.2, 0.3)))
    }
}

/// One of each layer whose names or shapes differ between Burn and PyTorch, and some that do not.
#[derive(Module, Debug)]
pub struct Layers<B: Backend> {
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
    inst: InstanceNorm<B>,
    act: PRelu<B>,
    gn: GroupNorm<B>,
    fc: Linear<B>,
    norm: LayerNorm<B>,
    rms: RmsNorm<B>,
    out: Linear<B>,
}

impl Model for Layers<B> {
    fn new() -> Self {
        let device = device();
        Self {
            conv: Conv2dConfig::new([1, 4], [3, 3]).init(&device),
            bn: BatchNormConfig::new(4).init(&device),
            inst: InstanceNormConfig::new(4).init(&device),
            act: PReluConfig::new().with_num_parameters(4).init(&device),
            gn: GroupNormConfig::new(2, 4).init(&device),
            fc: LinearConfig::new(144, 16).init(&device),
            norm: LayerNormConfig::new(16).init(&device),
            rms: RmsNormConfig::new(16).init(&device),
            out: LinearConfig::new(16, 5).with_bias(false).init(&device),
        }
    }

    fn outputs(&self) -> Vec<f32> {
        let x = self
            .inst
            .forward(self.bn.forward(self.conv.forward(wave([2, 1, 8, 8]))));
        let x = self.gn.forward(self.act.forward(x)).flatten::<2>(1, 3);
        let x = self.norm.forward(relu(self.fc.forward(x)));
        values(self.out.forward(self.rms.forward(x)))
    }
}

/// Layers whose matrices PyTorch packs into one.
#[derive(Module, Debug)]
pub struct Sequences<B: Backend> {
    emb: Embedding<B>,
    lstm: Lstm<B>,
    both: BiLstm<B>,
    stack: Vec<Lstm<B>>,
    gru: Gru<B>,
    attention: MultiHeadAttention<B>,
    head: Linear<B>,
}

impl Model for Sequences<B> {
    fn new() -> Self {
        let device = device();
        Self {
            emb: EmbeddingConfig::new(11, 6).init(&device),
            lstm: LstmConfig::new(6, 8, true).init(&device),
            both: BiLstmConfig::new(8, 4, true).init(&device),
            stack: (0..2)
                .map(|_| LstmConfig::new(8, 8, true).init(&device))
                .collect(),
            gru: GruConfig::new(8, 8, true).init(&device),
            attention: MultiHeadAttentionConfig::new(8, 2).init(&device),
            head: LinearConfig::new(8, 3).init(&device),
        }
    }

    fn outputs(&self) -> Vec<f32> {
        let ids = Tensor::<B, 2, Int>::from_data([[1, 4, 0, 10, 7], [2, 2, 9, 3, 5]], &device());
        let (x, _) = self.lstm.forward(self.emb.forward(ids), None);
        let (x, _) = self.both.forward(x, None);
        let x = self
            .stack
            .iter()
            .fold(x, |x, layer| layer.forward(x, None).0);
        let x = self.gru.forward(x, None);
        let x = self.attention.forward(MhaInput::self_attn(x)).context;
        values(self.head.forward(x))
    }
}
