// Ends by what nobody catches: an error, that of a promise, one with a message as long as a stack, or no error at all.
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
};
ways[process.argv[2]]();
