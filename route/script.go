package route

// ScriptEngine turns the text of script rules into programs.
type ScriptEngine interface {
	// Compile reports what is wrong with the text. Equal texts may share a program.
	Compile(source string) (Script, error)
}

// Script is a program that chooses among endpoints (S-123). It may be asked by several goroutines.
type Script interface {
	// Choose returns the indexes of the endpoints that the program leaves, in any order. It ends within a bound of its own.
	Choose(call *ScriptCall) ([]int, error)
}

// ScriptCall is what a program is told.
type ScriptCall struct {
	Endpoints []ScriptEndpoint
	Method    string // RPC method, or the name of the route
	Caller    Caller
	// Facts is the request, for a program that is asked for each call; nil: none is at hand.
	Facts *Facts
}

// ScriptEndpoint is one endpoint.
type ScriptEndpoint struct {
	Host, Port string
	Label      func(key string) string // group, version, zone, region and free labels; "" if there is none
}
