# Sourced by tests of the Debian package.

# make_packages DIRECTORY: tarn_0.1.0~1_*.deb of this tree there, with its debug symbols, and tarn_0.1.0~2.deb, the next
# version, but for its number the same.
make_packages() {
    local -r tree=$BATS_TEST_DIRNAME/../..
    mkdir -p "$1"
    (cd "$tree" && ./dev package --version 0.1.0~1) > "$BATS_FILE_TMPDIR/made" 2>&1 || {
        tail -n 30 "$BATS_FILE_TMPDIR/made" "$tree/build/log/package.txt" >&2
        return 1
    }
    cp "$tree"/build/package/tarn{,-dbgsym}_0.1.0~1_*.deb "$1"
    dpkg-deb --raw-extract "$1"/tarn_0.1.0~1_*.deb "$BATS_FILE_TMPDIR/next"
    sed -i 's/^Version: .*/Version: 0.1.0~2/' "$BATS_FILE_TMPDIR/next/DEBIAN/control"
    dpkg-deb --build --root-owner-group -Znone "$BATS_FILE_TMPDIR/next" "$1/tarn_0.1.0~2.deb" > /dev/null
}
