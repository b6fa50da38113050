package targets

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxSelectorBytes = 4096
	maxRequirements  = 64
)

// Selector says which targets are meant, as kubectl's `-l` does. The zero value means all.
type Selector struct {
	requirements []requirement
	// nil: targets of all namespaces.
	sees func(namespace string) bool
	// Empty: targets of any name.
	name string
}

type requirement struct {
	key string
	// Empty: the label must be there, with any value.
	values []string
	negate bool
}

// ParseSelector reads "workload=checkout,node!=a", "pod in (x,y)", "canary" and "!canary". In a value "*" stands for any
// characters.
func ParseSelector(text string) (Selector, error) {
	var selector Selector
	if len(text) > maxSelectorBytes {
		return selector, fmt.Errorf("the selector is longer than %d bytes", maxSelectorBytes)
	}
	if strings.TrimSpace(text) == "" {
		return selector, nil
	}
	for _, part := range splitOutsideParentheses(text) {
		one, err := parseRequirement(strings.TrimSpace(part))
		if err != nil {
			return Selector{}, err
		}
		selector.requirements = append(selector.requirements, one)
	}
	if len(selector.requirements) > maxRequirements {
		return Selector{}, fmt.Errorf("the selector has more than %d parts", maxRequirements)
	}
	return selector, nil
}

func splitOutsideParentheses(text string) []string {
	var parts []string
	depth, begin := 0, 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, text[begin:i])
				begin = i + 1
			}
		}
	}
	return append(parts, text[begin:])
}

func parseRequirement(text string) (requirement, error) {
	if text == "" {
		return requirement{}, fmt.Errorf("the selector has an empty part: write like \"workload=checkout,node!=a\"")
	}
	for _, operator := range []string{"!=", "==", "="} {
		if key, value, found := strings.Cut(text, operator); found {
			return checked(text, requirement{strings.TrimSpace(key), []string{strings.TrimSpace(value)}, operator == "!="})
		}
	}
	fields := strings.Fields(text)
	if len(fields) >= 2 && (strings.HasPrefix(fields[1], "in") || strings.HasPrefix(fields[1], "notin")) {
		operator, list, found := strings.Cut(strings.TrimSpace(strings.TrimPrefix(text, fields[0])), "(")
		operator = strings.TrimSpace(operator)
		if !found || !strings.HasSuffix(list, ")") || operator != "in" && operator != "notin" {
			return requirement{}, fmt.Errorf("selector part %q: write like \"pod in (a,b)\"", text)
		}
		values := strings.Split(strings.TrimSuffix(list, ")"), ",")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		return checked(text, requirement{fields[0], values, operator == "notin"})
	}
	key, negate := strings.CutPrefix(text, "!")
	return checked(text, requirement{strings.TrimSpace(key), nil, negate})
}

func checked(text string, one requirement) (requirement, error) {
	if one.key == "" || strings.ContainsAny(one.key, " ()!=*,") {
		return requirement{}, fmt.Errorf("selector part %q: %q is no name of a label", text, one.key)
	}
	for _, value := range one.values {
		if strings.ContainsAny(value, "()=!") {
			return requirement{}, fmt.Errorf("selector part %q: %q is no value of a label", text, value)
		}
	}
	return one, nil
}

// Matches is whether a target with these labels is meant, which has no address.
func (s Selector) Matches(labels map[string]string) bool {
	return (s.name == "" || s.name == Target{Labels: labels}.Name()) && s.matches(labels)
}

func (s Selector) matches(labels map[string]string) bool {
	for _, one := range s.requirements {
		value, has := labels[one.key]
		fits := has
		if one.values != nil {
			fits = has && slices.ContainsFunc(one.values, func(pattern string) bool { return matches(pattern, value) })
		}
		// As in Kubernetes, a target without the label is another than each value.
		if fits == one.negate {
			return false
		}
	}
	return s.sees == nil || s.sees(labels[NamespaceLabel])
}

// Within means only those of the selector's targets that are in a namespace which is seen.
func (s Selector) Within(sees func(namespace string) bool) Selector {
	s.sees = sees
	return s
}

// Named means only the selector's target of this name, as "targets/shop/checkout-1".
func (s Selector) Named(name string) Selector {
	s.name = name
	return s
}

// matches takes time in proportion to the product of both lengths, however many stars there are.
func matches(pattern, text string) bool {
	star, mark := -1, 0
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Select returns the targets that are meant.
func (s Selector) Select(all []Target) []Target {
	if len(s.requirements) == 0 && s.sees == nil && s.name == "" {
		return all
	}
	var meant []Target
	for _, target := range all {
		if (s.name == "" || s.name == target.Name()) && s.matches(target.Labels) {
			meant = append(meant, target)
		}
	}
	return meant
}
