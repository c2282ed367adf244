"""The state of a training run in one SafeTensors file, without pickle. docs/state.md has the format."""
