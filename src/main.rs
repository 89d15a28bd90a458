fn main() {
    let path = std::env::args().nth(1).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut map = aorta::base::SourceMap::new();
    let base = map.add(path, text.clone()).unwrap();
    let (ast, errors) = aorta::syntax::parse(&text, base, &Default::default());
    let map = std::sync::Arc::new(map);
    for e in errors { println!("{:?}", miette::Report::new(e).with_source_code(map.clone())); }
    match aorta::model::analyze(&ast, &Default::default()) {
        Err(errors) => for e in errors { println!("{:?}", miette::Report::new(e).with_source_code(map.clone())); },
        Ok(p) => {
            println!("{:?}", p.params);
            for s in &p.cycle { for id in s.ids() { let op = s.op(id);
                let ins: Vec<_> = s.inputs(id).iter().map(|v| p.view_text(*v)).collect();
                let outs: Vec<_> = s.outputs(id).iter().map(|v| p.view_text(*v)).collect();
                println!("{:3} {:10} {:12} {:?} -> {:?}  {}", id.0, p.streams[op.stream.index()].name, p.op_text(op), ins, outs, p.op_name(op)); } }
        }
    }
}
