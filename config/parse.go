package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxDocument bounds the size of one document.
const maxDocument = 64 << 20

// parse makes a tree of a document: JSON by its own rules, all else as YAML.
func parse(source *Source, data []byte) (*yaml.Node, *Error) {
	fail := func(line, col int, format string, args ...any) *Error {
		return &Error{File: source.Name, Line: line, Col: col, Msg: fmt.Sprintf(format, args...)}
	}
	if len(data) > maxDocument {
		return nil, fail(1, 1, "the document has %d bytes; at most %d are read", len(data), maxDocument)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		line, col := position(data, invalid(data))
		return nil, fail(line, col, "the document is not UTF-8 text")
	}
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	if len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(data) {
		return parseJSON(data), nil
	}
	root, line, msg := parseYAML(data)
	switch {
	case msg != "":
		return nil, fail(line, 1, "%s", msg)
	case root == nil || isNull(root) && root.Value == "":
		return nil, fail(1, 1, "the document is empty")
	}
	return root, nil
}

// invalid finds the first byte that is not UTF-8.
func invalid(data []byte) int {
	i := 0
	for i < len(data) {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		i += n
	}
	return i
}

// position counts the line and the column (in characters) of an offset.
func position(data []byte, offset int) (line, col int) {
	before := data[:offset]
	line = 1 + bytes.Count(before, []byte{'\n'})
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}

// parseYAML reads the one document of data; msg says what is wrong with it.
func parseYAML(data []byte) (root *yaml.Node, line int, msg string) {
	defer func() {
		if r := recover(); r != nil { // the parser's own checks of its state
			root, line, msg = nil, 1, fmt.Sprintf("not readable as YAML: %v", r)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(version11(data)))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, 1, ""
	} else if err != nil {
		line, msg = yamlError(err)
		return nil, line, msg
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		return nil, max(more.Line, 1), "a second document in one file: put it into a file of its own"
	case !errors.Is(err, io.EOF):
		line, msg = yamlError(err)
		return nil, line, msg
	}
	if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		return doc.Content[0], 0, ""
	}
	return nil, 1, ""
}

// version11 lets a document say %YAML 1.2, which the parser refuses although it reads it.
func version11(data []byte) []byte {
	const says, reads = "%YAML 1.2", "%YAML 1.1"
	for rest := data; len(rest) > 0; {
		if bytes.HasPrefix(rest, []byte(says)) {
			i := len(data) - len(rest)
			out := bytes.Clone(data)
			copy(out[i:], reads)
			return out
		}
		first, after, _ := bytes.Cut(rest, []byte{'\n'})
		if first = bytes.TrimSpace(first); len(first) > 0 && first[0] != '#' && first[0] != '%' {
			return data
		}
		rest = after
	}
	return data
}

// yamlError takes the line out of the parser's message.
func yamlError(err error) (int, string) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if digits, text, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(digits); err == nil {
				return max(line, 1), "not readable as YAML: " + text
			}
		}
	}
	return 1, "not readable as YAML: " + msg
}

// jsonReader makes a tree of JSON that was found valid. JSON has its own reader since YAML parsers fall short of it: they
// know no surrogate pairs and no long keys.
type jsonReader struct {
	data    []byte
	tokens  *json.Decoder
	counted int // offset that line and col belong to
	line    int
	col     int
}

func parseJSON(data []byte) *yaml.Node {
	r := &jsonReader{data: data, tokens: json.NewDecoder(bytes.NewReader(data)), line: 1, col: 1}
	r.tokens.UseNumber()
	n, _ := r.next()
	return n
}

// next reads one value; it answers false at the end of a list or map.
func (r *jsonReader) next() (*yaml.Node, bool) {
	at := int(r.tokens.InputOffset())
	for at < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[at]) >= 0 {
		at++
	}
	token, err := r.tokens.Token()
	if err != nil {
		return nil, false
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	n.Line, n.Column = r.position(at)
	switch t := token.(type) {
	case json.Delim:
		if t == '}' || t == ']' {
			return nil, false
		}
		n.Kind = yaml.MappingNode
		if t == '[' {
			n.Kind = yaml.SequenceNode
		}
		for c, ok := r.next(); ok; c, ok = r.next() {
			n.Content = append(n.Content, c)
		}
	case string:
		n.Value, n.Style = t, yaml.DoubleQuotedStyle
	case json.Number:
		n.Value = t.String()
	case bool:
		n.Value = strconv.FormatBool(t)
	case nil:
		n.Value = "null"
	}
	return n, true
}

// position counts on from where the last token stood.
func (r *jsonReader) position(at int) (line, col int) {
	for ; r.counted < at; r.counted++ {
		switch c := r.data[r.counted]; {
		case c == '\n':
			r.line, r.col = r.line+1, 1
		case utf8.RuneStart(c):
			r.col++
		}
	}
	return r.line, r.col
}
