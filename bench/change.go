//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// How often an endpoint is replaced, and how it is waited for.
const (
	changes     = 30
	firstLook   = 120 * time.Millisecond // nothing is in force sooner
	lookEvery   = 20 * time.Millisecond
	changeBound = 5 * time.Second
)

// replace writes a file beside its place and puts it there.
func replace(file string, text []byte) error {
	temporary := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
	if err := os.WriteFile(temporary, text, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

// files writes a folder with one file for each service.
func (s size) files(dir, originPort string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range s.services {
		name := fmt.Sprintf("s%d", i)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(name+":\n"+s.list(originPort, 1)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// replaceEndpoints replaces one endpoint of one service again and again, each time until the admin API shows it, and
// returns the CPU time of one change. What the process takes in the same time without changes, asked as often, is taken off.
func (s size) replaceEndpoints(ctx context.Context, p *process, at places, originPort string) (time.Duration, error) {
	name := fmt.Sprintf("s%d", s.services/2)
	file, list := filepath.Join(at.files, name+".yaml"), s.list(originPort, 1)
	url := "http://" + at.admin + "/services/" + name
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	looks, used, begin := 0, p.cpu(), time.Now()
	for i := range changes {
		address := fmt.Sprintf("127.1.200.%d:%s", 1+i, originPort)
		text := name + ":\n" + strings.Replace(list, "127.1.0.1:"+originPort, address, 1)
		if err := replace(file, []byte(text)); err != nil {
			return 0, err
		}
		wait := firstLook
		for since := time.Now(); ; wait = lookEvery {
			if err := pause(ctx, wait); err != nil {
				return 0, err
			}
			looks++
			answer, err := get(ctx, url)
			if err != nil {
				return 0, err
			}
			if strings.Contains(answer, address) {
				break
			}
			if time.Since(since) > changeBound {
				return 0, fmt.Errorf("change %d is not in force after %v: %.300s", i+1, changeBound, answer)
			}
		}
	}
	used, took := p.cpu()-used, time.Since(begin)
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	idle := p.cpu()
	for range looks {
		if err := pause(ctx, took/time.Duration(looks)); err != nil {
			return 0, err
		}
		if _, err := get(ctx, url); err != nil {
			return 0, err
		}
	}
	return perChange(used, p.cpu()-idle), nil
}

// perChange takes the idle time off; noise does not make a change cost less than nothing.
func perChange(used, idle time.Duration) time.Duration { return max(used-idle, 0) / changes }

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, changeBound)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(text), err
}
