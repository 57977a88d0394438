#!/bin/sh
# Builds the package of Debian, target/debian/allora_*.deb, and checks it. Needs `cargo install cargo-deb`.
# An argument names another profile than release.
set -eu
cd "$(dirname "$0")/../.."
profile=${1:-release}
cargo build --profile "$profile" --locked -p allora-cli
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
allora=target/$folder/allora
out=target/package
mkdir -p "$out/man" "$out/completions"
"$allora" man "$out/man"
"$allora" completions bash > "$out/completions/allora"
"$allora" completions zsh > "$out/completions/_allora"
"$allora" completions fish > "$out/completions/allora.fish"
deb=$(cargo deb -p allora-cli --no-build --profile "$profile")
ALLORA_DEB="$deb" cargo test --locked -p allora-cli --test it deb::
echo "$deb"
