package script

import "errors"

var errShim = errors.New("the script: its runtime is broken")

// shimSource runs before a program. It gives it endpoints, request, and the few names of Java that scripts written for
// Dubbo use (S-123): invokers, java.util.ArrayList, equals. And it takes what is needed for one step to be short: lengths
// are bounded, for the interpreter does not look up within a step.
const shimSource = `
(function (global) {
	"use strict";
	var most = 65536;
	function bounded(holder, name, size) {
		var was = holder[name];
		if (typeof was !== "function") { return; }
		Object.defineProperty(holder, name, {configurable: false, enumerable: false, writable: false, value: function () {
			if (size(this, arguments) > most) { throw new RangeError(name + ": too long"); }
			return was.apply(this, arguments);
		}});
	}
	var length = function (self) { return self == null ? 0 : self.length >>> 0; };
	Object.getOwnPropertyNames(Array.prototype).forEach(function (name) {
		if (name !== "constructor") { bounded(Array.prototype, name, length); }
	});
	bounded(Array, "from", function (self, args) { return length(args[0]); });
	bounded(String.prototype, "repeat", function (self, args) { return self.length * args[0]; });
	bounded(String.prototype, "padStart", function (self, args) { return args[0]; });
	bounded(String.prototype, "padEnd", function (self, args) { return args[0]; });
	bounded(String.prototype, "split", length);
	bounded(String.prototype, "replace", length);
	bounded(String.prototype, "replaceAll", length);
	bounded(JSON, "parse", function (self, args) { return length(args[0]); });
	String.prototype.equals = function (other) { return String(this) === String(other); };
	String.prototype.equalsIgnoreCase = function (other) { return String(this).toLowerCase() === String(other).toLowerCase(); };

	function ArrayList() { this.items = []; }
	ArrayList.prototype = {
		constructor: ArrayList,
		add: function (v) { this.items.push(v); return true; },
		get: function (i) { return this.items[i]; },
		size: function () { return this.items.length; },
		isEmpty: function () { return this.items.length === 0; },
		contains: function (v) { return this.items.indexOf(v) >= 0; },
		iterator: function () {
			var at = 0, items = this.items;
			return {hasNext: function () { return at < items.length; }, next: function () { return items[at++]; }};
		}
	};
	global.java = {util: {ArrayList: ArrayList}};

	function Invoker(e) { this.endpoint = e; }
	Invoker.prototype = {
		constructor: Invoker,
		getUrl: function () {
			var e = this.endpoint;
			return {
				getHost: function () { return e.host; },
				getIp: function () { return e.host; },
				getPort: function () { return e.port; },
				getAddress: function () { return e.host + ":" + e.port; },
				getParameter: function (key, other) { return e.label(key) || (other === undefined ? null : other); }
			};
		}
	};

	var invokers;
	Object.defineProperty(global, "__bind", {value: function (endpoints, request) {
		invokers = new ArrayList();
		endpoints.forEach(function (e) { invokers.add(new Invoker(e)); });
		global.endpoints = endpoints;
		global.request = request;
		global.invokers = invokers;
		global.route = undefined;
	}});
	Object.defineProperty(global, "__finish", {value: function (result, route) {
		if (result === undefined && typeof route === "function") { result = route; }
		if (typeof result === "function") { result = result(global.endpoints, global.request); }
		if (result instanceof ArrayList) { result = result.items; }
		if (!Array.isArray(result)) { throw new TypeError("a list of endpoints is expected, got " + (result === null ? "null" : typeof result)); }
		return result.map(function (v) {
			if (v instanceof Invoker) { v = v.endpoint; }
			if (v !== null && typeof v === "object" && typeof v.index === "number") { v = v.index; }
			if (typeof v !== "number") { throw new TypeError("an endpoint is expected in the list, got " + typeof v); }
			return v;
		});
	}});
})(this);
`
