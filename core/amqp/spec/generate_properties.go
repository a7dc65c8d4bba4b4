package spec

// properties writes the property constants, the decoded form and the wire kinds of a content class.
func (g *generator) properties(c Class) {
	g.f("// Content properties of class %s, in the order of their flags and of their values.\nconst (\n", c.Name)
	for i, f := range c.Properties {
		if i == 0 {
			g.f("Prop%s Property = iota\n", goName(f.Name))
			continue
		}
		g.f("Prop%s\n", goName(f.Name))
	}
	g.f("\npropCount = %d\n)\n\n", len(c.Properties))
	g.f("var propKinds = [propCount]propKind{\n")
	for _, f := range c.Properties {
		g.f("Prop%s: kind%s,\n", goName(f.Name), goName(string(f.Type)))
	}
	g.f("}\n\nvar propNames = [propCount]string{\n")
	for _, f := range c.Properties {
		g.f("Prop%s: %q,\n", goName(f.Name), f.Name)
	}
	g.f("}\n\n")
	g.f("// Properties is the decoded form of the properties of class %s. Flags says which are there: see [Properties.Has].\n", c.Name)
	g.f("type Properties struct {\nFlags uint16\n")
	for _, f := range c.Properties {
		g.f("%s %s\n", goName(f.Name), goType(f.Type))
	}
	g.f("}\n\nfunc (p *Properties) parse(d *decoder) {\n")
	for _, f := range c.Properties {
		g.f("if p.Has(Prop%s) {\np.%s = d.%s(%q)\n}\n", goName(f.Name), goName(f.Name), f.Type, f.Name)
	}
	g.f("}\n\nfunc (p *Properties) appendValues(dst []byte) []byte {\n")
	for _, f := range c.Properties {
		g.f("if p.Has(Prop%s) {\n", goName(f.Name))
		g.appendTo("p", f)
		g.f("}\n")
	}
	g.f("return dst\n}\n\n")
}
