#!/bin/sh
# Builds the package of Debian: target/debian/allora_*.deb. Needs `cargo install cargo-deb`.
set -eu
cd "$(dirname "$0")/../.."
cargo build --release --locked -p allora-cli
allora=target/release/allora
out=target/package
mkdir -p "$out/man" "$out/completions"
"$allora" man "$out/man"
"$allora" completions bash > "$out/completions/allora"
"$allora" completions zsh > "$out/completions/_allora"
"$allora" completions fish > "$out/completions/allora.fish"
cargo deb -p allora-cli --no-build
