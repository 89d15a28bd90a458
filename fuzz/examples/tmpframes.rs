fn main(){
    for f in std::fs::read_dir("corpus/frames").unwrap() { aorta_fuzz::properties::frames(&std::fs::read(f.unwrap().path()).unwrap()); }
    let mut x=88172645463325252u64; let mut n=0u64;
    let base: Vec<Vec<u8>> = std::fs::read_dir("corpus/frames").unwrap().map(|f| std::fs::read(f.unwrap().path()).unwrap()).collect();
    for i in 0..20000usize { let mut d=base[i%base.len()].clone(); if i%2==0 { d.clear(); }
        let mut r=||{x^=x<<13;x^=x>>7;x^=x<<17;x};
        if i%2==0 { let l=r()%300; for _ in 0..l {d.push(r() as u8);} } else { let at=(r() as usize)%d.len(); d[at]^=1<<(r()%8); }
        aorta_fuzz::properties::frames(&d); n+=1; }
    println!("{n} ok");
}
