fn main() {
    let path = std::env::args().nth(1).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut map = aorta::base::SourceMap::new();
    let base = map.add(path, text.clone()).unwrap();
    let (ast, errors) = aorta::syntax::parse(&text, base, &Default::default());
    if std::env::args().nth(2).is_some() {
        println!("{ast:#?}");
    }
    let map = std::sync::Arc::new(map);
    for e in errors {
        println!("{:?}", miette::Report::new(e).with_source_code(map.clone()));
    }
    println!("{} decls", ast.decls.len());
}
