// Ends by what has no handler: an error, that of a promise, an error with a very long message, an odd one, or none.
'use strict';

class Shop {
  pay(error) {
    throw error;
  }
}

function sell(message) {
  new Shop().pay(new TypeError(message));
}

const ways = {
  error() { sell('card of Mallory'); },
  promise() { Promise.resolve().then(function sellLater() { sell('card of Mallory'); }); },
  long() { sell('card\n    at Mallory (/home/Mallory.js:1:1)'); },
  value() { throw 'card of Mallory'; },
  odd() { throw Object.assign(new Error('card of Mallory'), { stack: 5 }); },
};
ways[process.argv[2]]();
