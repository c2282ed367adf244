//! Options of stores: the names that come out of each configuration. tests/support/burn_options.py says what a configuration is.
use crate::burn;
use burn_core::module::{Module, Param, ParamId};
use burn_core::tensor::{DType, Device, Tensor};
use burn_nn::*;
use burn_store::*;
use serde_json::{json, Value};
use std::path::Path;

#[derive(Module, Debug)]
struct Dws {
    depth: Linear,
    point: Linear,
}

#[derive(Module, Debug)]
enum Kind {
    BaseConv(Linear),
    DwsConv(Dws),
}

#[derive(Module, Debug)]
struct Block {
    lin: Linear,
    norm: LayerNorm,
    act: Kind,
}

#[derive(Module, Debug)]
struct Net {
    stem: Linear,
    fc: Vec<Linear>,
    blocks: Vec<Block>,
    bn: BatchNorm,
    head: Kind,
    scale: Param<Tensor<1>>,
    emb: Embedding,
}

fn net(device: &Device) -> Net {
    let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
    let block = |inputs, outputs, act| Block {
        lin: linear(inputs, outputs),
        norm: LayerNormConfig::new(outputs).init(device),
        act,
    };
    let dws = Dws {
        depth: linear(2, 2),
        point: linear(2, 2),
    };
    Net {
        stem: linear(3, 4),
        fc: vec![linear(4, 4), linear(4, 4), linear(4, 2)],
        blocks: vec![
            block(2, 3, Kind::BaseConv(linear(3, 3))),
            block(3, 2, Kind::DwsConv(dws)),
        ],
        bn: BatchNormConfig::new(4).init(device),
        head: Kind::BaseConv(linear(2, 2)),
        scale: Param::initialized(ParamId::new(), Tensor::from_data([1.0, 2.0], device)),
        emb: EmbeddingConfig::new(5, 2).init(device),
    }
}

fn predicate(name: &str) -> fn(&str, &str) -> bool {
    match name {
        "linear" => |_, container| container.ends_with("Linear"),
        "norm_path" => |path, _| path.contains("norm"),
        "deep" => |path, _| path.matches('.').count() >= 3,
        "block" => |_, container| container.contains("Block"),
        "layernorm" => |_, container| container.contains("LayerNorm"),
        "never" => |_, _| false,
        "weights" => {
            |path, container| path.ends_with("weight") && !container.ends_with("Embedding")
        }
        other => panic!("predicate {other}"),
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    list(value)
        .iter()
        .map(|text| text.as_str().unwrap().to_string())
        .collect()
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_string();
    list(value)
        .iter()
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .collect()
}

/// A store has the same methods whatever its kind, but no trait for them.
macro_rules! options_of_all {
    ($store:ident, $config:ident, $rename:ident) => {
        for pattern in texts(&$config["regex"]) {
            $store = $store.with_regex(&pattern);
        }
        for path in texts(&$config["full_paths"]) {
            $store = $store.with_full_path(path);
        }
        if $config["match_all"] == true {
            $store = $store.match_all();
        }
        if !$config["remapper"].is_null() {
            $store = $store.remap(KeyRemapper::from_patterns(pairs(&$config["remapper"])).unwrap());
        }
        for (pattern, replacement) in pairs(&$config["remap"]) {
            $store = $store.$rename(pattern, replacement);
        }
        if let Some(allow) = $config["partial"].as_bool() {
            $store = $store.allow_partial(allow);
        }
        if let Some(validate) = $config["validate"].as_bool() {
            $store = $store.validate(validate);
        }
    };
}

macro_rules! options_of_two {
    ($store:ident, $config:ident) => {
        $store = $store.with_regexes(texts(&$config["regexes"]));
        $store = $store.with_full_paths(texts(&$config["many_paths"]));
        for name in texts(&$config["predicate"]) {
            $store = $store.with_predicate(predicate(&name));
        }
        if let Some(skip) = $config["skip_enum"].as_bool() {
            $store = $store.skip_enum_variants(skip);
        }
        if let Some(map) = $config["map_indices"].as_bool() {
            $store = $store.map_indices_contiguous(map);
        }
        for pattern in texts(&$config["map_indices_except"]) {
            $store = $store.map_indices_contiguous_except(pattern);
        }
    };
}

fn burnpack(config: &Value, path: &Path) -> BurnpackStore {
    let mut store = BurnpackStore::from_file(path).overwrite(true);
    options_of_all!(store, config, with_remap_pattern);
    match config["adapter"].as_str() {
        Some("torch") => store
            .with_from_adapter(PyTorchToBurnAdapter)
            .with_to_adapter(BurnToPyTorchAdapter),
        Some("half") => store.with_to_adapter(HalfPrecisionAdapter::new()),
        _ => store,
    }
}

fn safetensors(config: &Value, path: &Path) -> SafetensorsStore {
    let mut store = SafetensorsStore::from_file(path).overwrite(true);
    options_of_all!(store, config, with_key_remapping);
    options_of_two!(store, config);
    let half = HalfPrecisionAdapter::new;
    match config["adapter"].as_str() {
        Some("torch") => store
            .with_from_adapter(PyTorchToBurnAdapter)
            .with_to_adapter(BurnToPyTorchAdapter),
        Some("half") => {
            store.with_to_adapter(half().with_module("BatchNorm").without_module("LayerNorm"))
        }
        Some("torch half") => store.with_to_adapter(BurnToPyTorchAdapter.chain(half())),
        Some("bf16") => store.with_to_adapter(FloatCastAdapter::to(DType::BF16)),
        _ => store,
    }
}

fn pytorch(config: &Value, path: &Path) -> PytorchStore {
    let mut store = PytorchStore::from_file(path);
    options_of_all!(store, config, with_key_remapping);
    options_of_two!(store, config);
    match config["top"].as_str() {
        Some(key) => store.with_top_level_key(key),
        None => store,
    }
}

fn lists(result: ApplyResult) -> Value {
    let error = |error: &ApplyError| match error {
        ApplyError::ShapeMismatch { path, .. } => ("shape", path.clone()),
        ApplyError::DTypeMismatch { path, .. } => ("dtype", path.clone()),
        ApplyError::AdapterError { path, .. } => ("adapter", path.clone()),
        ApplyError::LoadError { path, .. } => ("load", path.clone()),
    };
    let missing: Vec<_> = result.missing.iter().map(|(path, _)| path).collect();
    let errors: Vec<_> = result.errors.iter().map(error).collect();
    json!({"applied": result.applied, "skipped": result.skipped, "missing": missing, "unused": result.unused, "errors": errors})
}

fn outcome<S: ModuleStore>(
    op: &str,
    mut store: S,
    reopened: impl Fn() -> S,
) -> Result<Value, S::Error> {
    let mut module = net(&crate::device());
    Ok(match op {
        "load" => lists(store.apply_to(&mut module)?),
        "keys" => json!({"keys": store.keys()?}),
        _ => {
            store.collect_from(&module)?;
            let mut saved = reopened();
            let described = |tensor: &burn_store::burn_pack::Tensor| {
                json!([
                    tensor.name,
                    tensor.shape.to_vec(),
                    format!("{:?}", tensor.dtype)
                ])
            };
            json!({"saved": saved.get_all_tensors()?.values().map(described).collect::<Vec<_>>()})
        }
    })
}

pub fn answer(configurations: &str, answers: &str) {
    let text = std::fs::read_to_string(configurations).unwrap();
    let folder = Path::new(configurations).parent().unwrap();
    let mut all = serde_json::Map::new();
    for config in serde_json::from_str::<Vec<Value>>(&text).unwrap() {
        let (op, store) = (
            config["op"].as_str().unwrap(),
            config["store"].as_str().unwrap(),
        );
        let saved = folder.join(if store == "bpk" {
            "saved.bpk"
        } else {
            "saved.safetensors"
        });
        let path = config["file"]
            .as_str()
            .map_or(saved, |file| folder.join(file));
        let found = match store {
            "bpk" => outcome(op, burnpack(&config, &path), || {
                BurnpackStore::from_file(&path)
            })
            .map_err(|e| e.to_string()),
            "st" => outcome(op, safetensors(&config, &path), || {
                SafetensorsStore::from_file(&path)
            })
            .map_err(|e| e.to_string()),
            _ => outcome(op, pytorch(&config, &path), || {
                PytorchStore::from_file(&path)
            })
            .map_err(|e| e.to_string()),
        };
        let id = config["id"].as_str().unwrap().to_string();
        all.insert(id, found.unwrap_or_else(|text| json!({"error": text})));
    }
    std::fs::write(answers, serde_json::to_string(&all).unwrap()).unwrap();
}
