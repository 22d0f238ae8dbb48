// The login form. It sends along where the reader wanted to go, fragment included:
// browsers send no fragment by themselves.

const WRONG = '#wrong';

const wanted = new URLSearchParams(location.search).get('next') ?? '/';
const fragment = location.hash === WRONG ? '' : location.hash;

// After a wrong token the address has the fragment already.
document.getElementById('next').value = wanted.includes('#')
  ? wanted
  : `${wanted}${fragment}`;
