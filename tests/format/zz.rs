#[test]
fn zz() {
    for (path, text) in crate::shipped::files() {
        let new = crate::formatted(&text);
        let out = format!("/tmp/fmtex/out/{}", path.replace('/', "_"));
        std::fs::write(&out, new).unwrap();
    }
}
