package merge

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"stackd.example/fleet/api/stackdv1"
)

const (
	maxNameBytes        = 512
	maxExplanationBytes = 1024
)

// printable returns the text without what would disturb a terminal or the order of letters, and cut at `limit` bytes.
func printable(text string, limit int) string {
	cut := len(text) > limit
	if cut {
		end := limit - len("…")
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	if !isPlain(text) {
		text = strings.Map(func(r rune) rune {
			if r == utf8.RuneError || !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, text)
	}
	if cut {
		text += "…"
	}
	return text
}

func isPlain(text string) bool {
	for i := 0; i < len(text); i++ {
		if text[i] < 0x20 || text[i] > 0x7e {
			return false
		}
	}
	return true
}

// keyOf names a frame: by its function, else by its place in its file, which is equal in each process of a build.
func keyOf(frame *stackdv1.Frame) frameKey {
	key := frameKey{printable(frame.GetFunction(), maxNameBytes), printable(frame.GetModule(), maxNameBytes)}
	if key.function != "" {
		return key
	}
	key.function = key.module
	if key.function == "" {
		key.function = "?"
	}
	// What has no file has other addresses in each process.
	if offset := frame.GetModuleOffset(); offset != "" && !strings.HasPrefix(key.module, "[") && key.module != "" {
		key.function += "+" + printable(offset, 32)
	}
	return key
}

// tellingNames names a stack by its innermost functions. Those of the C library, which each wait ends in, tell nothing.
func tellingNames(keys []frameKey) string {
	first := slices.IndexFunc(keys, func(key frameKey) bool { return !isOfSystem(key.module) })
	keys = keys[max(first, 0):]
	var names []string
	for _, key := range keys[:min(len(keys), namedFunctions)] {
		names = append(names, key.function)
	}
	return strings.Join(names, " < ")
}

func isOfSystem(module string) bool {
	for _, begin := range []string{"libc.", "libc-", "libpthread", "ld-", "[vdso]"} {
		if strings.HasPrefix(module, begin) {
			return true
		}
	}
	return false
}

// keysOf names the frames of a stack, innermost first; of a stack that is too deep the outermost are left out.
func keysOf(frames []*stackdv1.Frame) []frameKey {
	frames = frames[:min(len(frames), maxDepth)]
	keys := make([]frameKey, len(frames))
	for i, frame := range frames {
		keys[i] = keyOf(frame)
	}
	return keys
}

// withoutNumbers puts "#" in place of each number and address: what differs between equal processes. Of tids nothing is left.
func withoutNumbers(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for i := 0; i < len(text); {
		if !isDigit(text[i]) || i > 0 && isWord(text[i-1]) {
			out.WriteByte(text[i])
			i++
			continue
		}
		end := i
		for end < len(text) && (isWord(text[end]) || (text[end] == '.' || text[end] == ',') && end+1 < len(text) && isDigit(text[end+1])) {
			end++
		}
		out.WriteByte('#')
		i = end
	}
	return strings.ReplaceAll(out.String(), " (tid #)", "")
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool { return isDigit(c) || c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
