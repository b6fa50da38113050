// As app.py, but that one thread is all there is: it stands still while it reads.
'use strict';
const fs = require('fs');

function abortHere() { process.abort(); }

function waitsForNobody() { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); }

function standsStill() {
  const line = Buffer.alloc(16);
  fs.readSync(0, line);
  if (line.toString().startsWith('crash')) abortHere();
  // After some rounds of the loop, which then comes round no more.
  if (line.toString().startsWith('hang')) setTimeout(waitsForNobody, 1500);
}

fs.writeSync(1, 'ready\n');
standsStill();
setInterval(() => {}, 1000);
