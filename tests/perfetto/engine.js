/* Runs the engine of Perfetto's page under Node: `node engine.js FOLDER` (the page's files).

   Requests come from standard input, and answers go to standard output. Both have the format that
   the page and its worker exchange: a serialized TraceProcessorRpcStream. */
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const contents = (name) => fs.readFileSync(path.join(folder, path.basename(name)));

/* A worker may read a file synchronously, so the engine is loaded when the bundle has run. */
class XMLHttpRequest {
    open(method, name) {
        this.name = name;
    }
    send() {
        this.response = contents(this.name);
    }
}

/* The globals of a worker. The error classes are this context's: the bundle compares the classes of
   errors that WebAssembly raises. */
const scope = {
    WorkerGlobalScope: Object,
    location: { href: "" },
    console: { ...console, log: console.error },
    ...{ Error, TypeError, TextDecoder, TextEncoder, Uint8Array, URL, WebAssembly, XMLHttpRequest },
    ...{ crypto, performance, queueMicrotask, setTimeout, clearTimeout },
};
scope.self = scope;
vm.runInNewContext(contents("engine_bundle.js").toString(), scope);

const port = { postMessage: (answer) => fs.writeSync(1, answer) };
scope.onmessage({ data: port });
process.stdin.on("data", (request) => port.onmessage({ data: new Uint8Array(request) }));
