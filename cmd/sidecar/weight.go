package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sidecar-mesh/sidecar/config"
)

// readAs is a document, empty where it cannot be read: why, others say.
func readAs(name string, data []byte) *config.Config {
	doc, err := config.LoadDocument(config.Document{Name: name, Place: name, Data: data}, os.LookupEnv)
	if err != nil {
		return config.Default()
	}
	return doc
}

// confirmed refuses a document that turns on a switch of level 3, in all sidecars at once, without a confirmation and a reason
// (S-159). cfg may be nil.
func confirmed(cfg *config.Config, name string, data []byte, confirm bool) error {
	of, ok := strings.CutPrefix(name, "switches/")
	if !ok {
		return nil
	}
	w := readAs(name, data).Switches[of]
	if w == nil || !w.Enabled.Value {
		return nil
	}
	level := w.Level
	if cfg != nil && cfg.Switches[of] != nil {
		level = cfg.Switches[of].Level
	}
	if level == 3 && (!confirm || strings.TrimSpace(w.Reason) == "") {
		return fmt.Errorf("%s is a switch of level 3, which has a large impact: to turn it on, --confirm is needed, and a reason in the document", of)
	}
	return nil
}

// shadow says how far a document counts where a file has the same; empty: in full. cfg may be nil.
func shadow(cfg *config.Config, name string, data []byte) string {
	if cfg == nil {
		return ""
	}
	kind, of, _ := strings.Cut(name, "/")
	found := false
	switch kind {
	case "switches":
		if cfg.Switches[of] != nil {
			return "the file has switches." + of + ": wherever it is in force, only enabled and reason count of this document"
		}
	case "services":
		found = cfg.Services[of] != nil
	case "policies":
		found = cfg.Policies[of] != nil
	case "grey":
		found = cfg.Grey[of] != nil
	case "rules":
		found = ruledByFile(cfg, of)
	case "groups":
		for _, g := range readAs(name, data).Groups {
			found = found || slices.ContainsFunc(cfg.Groups, func(f config.GroupSwitch) bool { return f.Service == g.Service && f.Group == g.Group })
		}
	}
	if !found {
		return ""
	}
	return "the file has " + kind + " for the same, which win over " + name + " wherever that file is in force"
}
