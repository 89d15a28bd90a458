mod common;
mod gradients;
