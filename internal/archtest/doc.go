// Package archtest keeps the architecture: tests that read the source of the whole module and fail when a package imports
// what its layer may not, when a pure package touches the world, when a third-party type crosses its border, and when a
// small rule of style is broken. It owns the tables of those rules and nothing else. A rule changes in the commit that
// needs it, with the reason. Each checker is itself tested on planted violations.
package archtest
