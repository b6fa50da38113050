// As app.py, but that one thread is all there is: it stands still while it reads.
'use strict';
const fs = require('fs');

function abortHere() { process.abort(); }

function standsStill() {
  const line = Buffer.alloc(16);
  fs.readSync(0, line);
  if (line.toString().startsWith('crash')) abortHere();
}

fs.writeSync(1, 'ready\n');
standsStill();
setInterval(() => {}, 1000);
