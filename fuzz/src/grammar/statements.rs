//! Generates statements of the step and of definitions.

use super::operations::{FLOATS, TYPES, Use, tensor_type};
use super::tensors::Tensor;
use super::{Generator, MAX_DEPTH, MAX_OPERATIONS, MAX_TEXT};

impl Generator<'_> {
    pub fn statements(&mut self, depth: usize) {
        while !self.choices.0.is_empty() && self.text.len() < MAX_TEXT && !self.choices.once_in(6) {
            self.statement(depth);
        }
    }

    /// Generates statements in a scope of their own: their labels and names are unknown afterwards.
    pub fn scope(&mut self, depth: usize) {
        let (tensors, labels, wholes) = (self.tensors.len(), self.labels.len(), self.wholes.len());
        self.scopes += 1;
        self.statements(depth);
        self.scopes -= 1;
        self.tensors.truncate(tensors);
        self.labels.truncate(labels);
        self.wholes.truncate(wholes);
    }

    fn statement(&mut self, depth: usize) {
        let deep = depth >= MAX_DEPTH;
        match self.choices.below(25) {
            0..=7 => self.operation(),
            8 | 9 if !deep => {
                let (stream, after) = (self.stream(), self.after());
                self.add(&format!("on {stream}{after} {{"));
                self.statements(depth + 1);
                self.add("}");
            }
            10 | 11 => {
                let (stream, after) = (self.stream(), self.after());
                self.text += &format!("on {stream}{after} {{ ");
                self.operation();
                self.text.truncate(self.text.trim_end().len());
                // If the operation ends with a line comment, the closing brace must be on the next line.
                self.text += "\n";
                self.add("}");
            }
            12 if !deep && self.operations + self.times * 4 < MAX_OPERATIONS => self.repeat(depth),
            13 if !deep => self.choose(depth),
            14 if !deep => {
                let name = self.fresh("part");
                let index = if self.choices.once_in(3) { "[0]" } else { "" };
                self.add(&format!("phase {name}{index} {{"));
                self.statements(depth + 1);
                self.add("nop()");
                self.add("}");
            }
            15 => {
                let (name, value) = (self.fresh("c"), self.choices.below(16) as u64);
                let written = self.whole(value);
                self.add(&format!("let {name} = {written}"));
                self.wholes.push((name, value, value));
            }
            16 => {
                let name = self.fresh("l");
                let dtype = self.choices.pick(&TYPES);
                let ty = tensor_type(dtype, &[8, 16]);
                if self.choices.once_in(2) {
                    let init = self.choices.pick(&["zeros", "ones", "3"]);
                    self.add(&format!("buffer {name}: {ty} = {init}"));
                } else {
                    self.add(&format!("buffer {name}: {ty}"));
                    self.add(&format!("fill(1 -> {name})"));
                }
                self.known(name, dtype, vec![8, 16]);
            }
            17 => self.call(),
            18 if self.times == 1 => self.family(),
            19 => {
                let name = self.fresh("e");
                self.add(&format!("{name}: signal()"));
                self.labels.push(name);
            }
            20 => match self.label() {
                Some(label) => self.add(&format!("wait({label})")),
                None if self.choices.once_in(2) => self.add("host_sync()"),
                None => self.add("sync()"),
            },
            21 | 22 if self.apart == 0 => {
                let made = self.collective();
                self.add(&made.text);
            }
            23 => self.both(),
            24 => self.gradient(),
            _ => self.operation(),
        }
    }

    /// Records that a tensor in scratch memory can be used from here on.
    fn known(&mut self, name: String, dtype: &'static str, dims: Vec<u64>) {
        self.numbers += 1;
        let memory = self.numbers;
        let tensor =
            Tensor { name, dtype, dims, space: "device", gaps: false, memory, writable: true, declared: false };
        self.tensors.push(tensor);
    }

    fn operation(&mut self) {
        self.operations += self.times;
        let made = self.alone();
        self.statement_of(made);
    }

    /// Adds a call as a statement, perhaps with a label.
    fn statement_of(&mut self, made: Use) {
        if made.scratch.is_empty() && self.choices.once_in(2) {
            return self.add(&made.text);
        }
        let label = self.fresh("t");
        self.add(&format!("{label}: {}", made.text));
        for (output, dtype, dims) in made.scratch {
            self.known(format!("{label}{output}"), dtype, dims);
        }
        if self.scopes == 0 {
            self.always.push(label.clone());
        }
        self.labels.push(label);
    }

    /// Generates an expression and its gradients, some of which are added to a buffer.
    fn gradient(&mut self) {
        self.operations += 6 * self.times;
        let x = self.operand(&FLOATS, |x| x.space == "device");
        let (f, g) = (self.fresh("t"), self.fresh("t"));
        let name = &x.name;
        // A bare type at two places would be two inputs.
        let expressions = ["gelu(X) * 2", "X * X + 1", "exp(X) - sqrt(abs(X))", "max(X, 0) / (X * X + 1)"];
        let expression = self.choices.pick(if x.is_bare() { &expressions[..1] } else { &expressions });
        self.add(&format!("{f}: map({})", expression.replace('X', name)));
        self.add(&format!("{g}: grad({f}, 1)"));
        if self.choices.once_in(2) {
            let sum = self.fresh("l");
            self.add(&format!("buffer {sum}: {}", tensor_type("f32", &x.dims)));
            self.add(&format!("fill(0 -> {sum})"));
            self.add(&format!("grad({f}, 0.5 -> {sum}, accumulate: true)"));
            self.known(sum, "f32", x.dims.clone());
        }
        self.known(g.clone(), x.dtype, x.dims);
        self.labels.push(g);
    }

    fn stream(&mut self) -> String {
        let (name, count) = self.streams[self.choices.below(self.streams.len())].clone();
        let stream = if name == "s" { format!("s[{}]", self.index(count)) } else { name };
        match self.choices.once_in(8) {
            true => format!("if {} {{ {stream} }} else {{ a }}", self.condition()),
            false => stream,
        }
    }

    fn label(&mut self) -> Option<String> {
        match self.labels.len() {
            0 => None,
            count => Some(self.labels[count - 1 - self.choices.below(count)].clone()),
        }
    }

    fn after(&mut self) -> String {
        let edge = |maker: &mut Self| {
            let label = maker.label()?;
            let always = maker.always.contains(&label) && maker.apart == 0;
            let label =
                if always && maker.in_step && maker.choices.once_in(3) { format!("prev({label})") } else { label };
            let when = if maker.choices.once_in(4) { format!(" when {}", maker.condition()) } else { String::new() };
            Some(label + &when)
        };
        let edges: Vec<String> = (0..self.choices.below(3)).filter_map(|_| edge(self)).collect();
        if edges.is_empty() { String::new() } else { format!(" after {}", edges.join(", ")) }
    }

    fn repeat(&mut self, depth: usize) {
        let name = self.fresh("r");
        let (over, low, high) = self.choices.pick(&[
            ("0..2", 0, 1),
            ("0..=2", 0, 2),
            ("rev(0..3)", 0, 2),
            ("[1, 2, 1]", 1, 2),
            ("0..max(2, 1)", 0, 1),
        ]);
        self.add(&format!("for {name} in {over} {{"));
        self.wholes.push((name, low, high));
        self.times *= 3;
        self.scope(depth + 1);
        self.times /= 3;
        self.wholes.pop();
        self.add("}");
    }

    fn choose(&mut self, depth: usize) {
        let ranks = self.choices.once_in(3) && self.together == 0;
        let condition = match ranks {
            true => self.choices.pick(&["rank == 0", "rank % 2 == 1", "rank + 1 < world"]).to_owned(),
            false => self.condition(),
        };
        self.apart += usize::from(ranks);
        self.add(&format!("if {condition} {{"));
        self.scope(depth + 1);
        if self.choices.once_in(4) {
            let other = self.condition();
            self.add(&format!("}} else if {other} {{"));
            self.scope(depth + 1);
        }
        if self.choices.once_in(2) {
            self.add("} else {");
            self.scope(depth + 1);
        }
        self.add("}");
        self.apart -= usize::from(ranks);
    }

    /// Generates an `if` with the same label in both branches.
    fn both(&mut self) {
        let (label, condition) = (self.fresh("t"), self.condition());
        let made = self.alone();
        self.add(&format!("if {condition} {{ {label}: {} }} else {{ {label}: nop() }}", made.text));
        self.labels.push(label);
    }

    /// Generates a family of labels, each of which waits for the one before.
    fn family(&mut self) {
        let (label, variable) = (self.fresh("g"), self.fresh("r"));
        let x = self.operand(&FLOATS, |x| x.space != "host" && !x.dims.is_empty());
        let after = self.choices.pick(&["", " after LABEL[I - 1] when I > 0"]).replace("LABEL", &label);
        let stream = self.stream();
        self.add(&format!("for {variable} in 0..3 {{"));
        self.text += &format!("on {stream}{} {{ ", after.replace('I', &variable));
        self.add(&format!("{label}[{variable}]: map({} + {variable}) }}", x.name));
        self.add("}");
        self.operations += 3 * self.times;
        let member = format!("{label}[{}]", self.choices.below(3));
        self.known(member.clone(), x.dtype, x.dims);
        self.labels.push(member);
    }

    fn call(&mut self) {
        if self.module.is_some() && self.choices.once_in(2) {
            self.operations += 8 * self.times;
            let made = self.call_module();
            return self.statement_of(made);
        }
        if self.defs.is_empty() || self.operations + self.times * 16 > MAX_OPERATIONS {
            return self.operation();
        }
        let def = self.defs[self.choices.below(self.defs.len())].clone();
        let (dtype, dims) = def.inputs[0].clone();
        let mut arguments = Vec::new();
        for (dtype, dims) in &def.inputs {
            let x = self.any_tensor(|x| x.dtype == *dtype && x.dims == *dims && x.space != "host");
            arguments.push(x.map_or_else(|| tensor_type(dtype, dims), |x| x.name));
        }
        if def.takes_whole {
            arguments.push(self.index(4));
        }
        if def.takes_stream {
            arguments.push(self.stream());
        }
        self.operations += 16 * self.times;
        let label = self.fresh("t");
        self.add(&format!("{label}: {}({})", def.name, arguments.join(", ")));
        self.known(format!("{label}.o"), dtype, dims);
        self.labels.push(label);
    }
}
