// Package script runs script rules: JavaScript that chooses endpoints (S-123). It is the only place that knows the
// interpreter; route declares what is asked of it. A program sees endpoints, caller and request and nothing of the
// machine: no file, socket, clock of its own making or other program. Each run is bounded in time and memory. A program is
// compiled once and has a few runtimes of its own, which it keeps for itself, so that no program sees another. Tests: the
// printed example, tables of results and mistakes, and programs that never end or grow without bound.
package script

import (
	"errors"
	"fmt"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"

	"github.com/sidecar-mesh/sidecar/route"
)

// Options bounds programs. The zero value has the defaults.
type Options struct {
	Time   time.Duration // of one run for a call; default 20 ms
	Memory uint64        // by which the heap may grow during a run, in bytes; default 32 MiB
	// Failed is told each run that failed; it must not block. It may be nil.
	Failed func(error)
}

// Engine compiles programs. It costs nothing until the first one.
type Engine struct{ o Options }

// New returns an engine.
func New(o Options) *Engine {
	if o.Time <= 0 {
		o.Time = 20 * time.Millisecond
	}
	if o.Memory == 0 {
		o.Memory = 32 << 20
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return &Engine{o: o}
}

const (
	maxSource  = 64 << 10 // bytes
	maxDepth   = 200      // calls within calls
	runtimes   = 4        // kept by one program; more are made when more run at once
	grace      = 10 * time.Millisecond
	watchEvery = time.Millisecond

	// A run for no call in particular, when a configuration or a list of endpoints is new, may take so many times as long: no
	// call waits for it, and what it leaves stays until the next change. A machine that stood still must not decide that.
	ahead = 10
)

// The ways in which a run fails.
var (
	ErrTime   = errors.New("the script took too long")
	ErrMemory = errors.New("the script took too much memory")
	ErrStuck  = errors.New("an earlier run of the script does not end")
)

// Compile implements route.ScriptEngine.
func (e *Engine) Compile(source string) (route.Script, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("the script is longer than %d bytes", maxSource)
	}
	code, err := goja.Compile("rule", source, false)
	if err != nil {
		return nil, fmt.Errorf("the script: %s", strings.TrimPrefix(err.Error(), "SyntaxError: "))
	}
	shim, err := goja.Compile("shim", shimSource, true)
	if err != nil {
		return nil, err
	}
	return &program{o: &e.o, code: code, shim: shim, idle: make(chan *goja.Runtime, runtimes)}, nil
}

// program is one compiled script.
type program struct {
	o          *Options
	code, shim *goja.Program
	idle       chan *goja.Runtime
	stuck      atomic.Int32 // runs that were given up and have not come back
}

// Choose implements route.Script. The run has a goroutine of its own, for the interpreter looks at its bounds only between
// steps, and one step may be long: the caller waits no longer than the bound all the same.
func (p *program) Choose(call *route.ScriptCall) ([]int, error) {
	list, err := p.choose(call)
	if err != nil {
		p.o.Failed(err)
	}
	return list, err
}

func (p *program) choose(call *route.ScriptCall) ([]int, error) {
	if p.stuck.Load() > 0 {
		return nil, ErrStuck
	}
	vm, err := p.runtime()
	if err != nil {
		return nil, err
	}
	done := make(chan answer, 1)
	sight := &sight{facts: call.Facts}
	go func() { done <- p.run(vm, call, sight) }()
	bound := p.o.Time
	if call.Facts == nil {
		bound *= ahead
	}
	a, ended := p.watch(vm, done, bound)
	sight.close()
	if !ended {
		p.stuck.Add(1)
		go func() {
			<-done
			p.stuck.Add(-1)
		}()
		return nil, a.err
	}
	if a.err != nil {
		return nil, a.err // its runtime may be in any state: it is dropped
	}
	select {
	case p.idle <- vm:
	default:
	}
	return a.list, nil
}

// answer is how a run ended.
type answer struct {
	list []int
	err  error
}

// watch waits for a run, and interrupts one that goes over its bounds of time and memory; false if even that does not end it.
func (p *program) watch(vm *goja.Runtime, done <-chan answer, bound time.Duration) (answer, bool) {
	begin, heap := time.Now(), uint64(0)
	tick := time.NewTimer(watchEvery)
	defer tick.Stop()
	var broken error
	for {
		select {
		case a := <-done:
			if broken != nil && a.err != nil {
				a.err = broken
			}
			return a, true
		case <-tick.C:
		}
		tick.Reset(watchEvery)
		now, took := heapBytes(), time.Since(begin)
		if heap == 0 {
			heap = now
		}
		switch {
		case broken != nil && took > bound+grace:
			return answer{err: broken}, false
		case broken != nil:
		case took > bound:
			broken = ErrTime
			vm.Interrupt(broken)
		case now > heap+p.o.Memory:
			broken = ErrMemory
			vm.Interrupt(broken)
		}
	}
}

func heapBytes() uint64 {
	s := [1]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s[:])
	return s[0].Value.Uint64()
}

// runtime takes a runtime that is free, or makes one.
func (p *program) runtime() (*goja.Runtime, error) {
	select {
	case vm := <-p.idle:
		vm.ClearInterrupt()
		return vm, nil
	default:
	}
	vm := goja.New()
	vm.SetMaxCallStackSize(maxDepth)
	for _, name := range withheld {
		if err := vm.GlobalObject().Delete(name); err != nil {
			return nil, fmt.Errorf("the script: %w", err)
		}
	}
	if _, err := vm.RunProgram(p.shim); err != nil {
		return nil, fmt.Errorf("the script: %w", err)
	}
	return vm, nil
}

// withheld are globals by which one step could take all the memory or time there is.
var withheld = [...]string{
	"ArrayBuffer", "SharedArrayBuffer", "DataView", "Uint8Array", "Uint8ClampedArray", "Int8Array", "Uint16Array", "Int16Array", "Uint32Array",
	"Int32Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array", "Proxy", "Reflect", "eval", "Function",
}

// run runs the program once.
func (p *program) run(vm *goja.Runtime, call *route.ScriptCall, see *sight) (a answer) {
	defer func() {
		if r := recover(); r != nil { // a fault of the interpreter must not end the proxy
			a = answer{err: fmt.Errorf("the script: %v", r)}
		}
	}()
	if err := bind(vm, call, see); err != nil {
		return answer{err: err}
	}
	v, err := vm.RunProgram(p.code)
	if err != nil {
		return answer{err: failure(err)}
	}
	finish, _ := goja.AssertFunction(vm.Get("__finish"))
	v, err = finish(goja.Undefined(), v, vm.GlobalObject().Get("route"))
	if err != nil {
		return answer{err: failure(err)}
	}
	var list []int
	if err := vm.ExportTo(v, &list); err != nil {
		return answer{err: fmt.Errorf("the script: %w", err)}
	}
	return answer{list: list}
}

// failure says what went wrong, in one line.
func failure(err error) error {
	var stopped *goja.InterruptedError
	if errors.As(err, &stopped) {
		if cause, ok := stopped.Value().(error); ok {
			return cause
		}
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("the script: %s", text)
}
