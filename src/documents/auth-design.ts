/**
 * The rules of `_users`, protocol.md 11.7, as the design document of that database. They are an ordinary validate
 * function, so they replicate, can be read, and can be replaced by an operator.
 */

export const AUTH_DESIGN_ID = '_design/_auth'

/** JavaScript as CouchDB accepts it, with its `isArray`. */
const VALIDATE = String.raw`function (newDoc, oldDoc, userCtx, secObj) {
  function refuse(reason) {
    throw { forbidden: reason };
  }

  function isAdmin() {
    if (userCtx.roles.indexOf('_admin') >= 0) return true;
    var admins = (secObj && secObj.admins) || {};
    if (userCtx.name !== null && (admins.names || []).indexOf(userCtx.name) >= 0) return true;
    return (admins.roles || []).some(function (role) {
      return userCtx.roles.indexOf(role) >= 0;
    });
  }

  function inOrder(roles) {
    return JSON.stringify(isArray(roles) ? roles.slice().sort() : []);
  }

  var before = oldDoc && !oldDoc._deleted ? oldDoc : null;

  if (newDoc._deleted === true) {
    var owner = before ? before.name : newDoc._id.replace(/^org\.couchdb\.user:/, '');
    if (!isAdmin() && userCtx.name !== owner) refuse('Only admins may delete other user docs.');
    return;
  }

  if (newDoc.type !== 'user') refuse('doc.type must be user');
  if (typeof newDoc.name !== 'string' || newDoc.name === '') refuse('doc.name is required');
  if (newDoc.roles === undefined || newDoc.roles === null) refuse('doc.roles must exist');
  if (!isArray(newDoc.roles)) refuse('doc.roles must be an array');
  newDoc.roles.forEach(function (role) {
    if (typeof role !== 'string') refuse('doc.roles can only contain strings');
  });
  if (newDoc._id !== 'org.couchdb.user:' + newDoc.name) {
    refuse('Doc ID must be of the form org.couchdb.user:name');
  }
  if (before && before.name !== newDoc.name) refuse('Usernames can not be changed.');

  if (newDoc.password_sha && !newDoc.salt) refuse('Users with password_sha must have a salt.');
  if (newDoc.password_scheme) {
    if (['simple', 'pbkdf2', 'simple+pbkdf2'].indexOf(newDoc.password_scheme) < 0) {
      refuse('Password scheme ' + String.fromCharCode(96) + newDoc.password_scheme + String.fromCharCode(96) + ' not supported.');
    }
    if (newDoc.password_scheme !== 'simple') {
      if (newDoc.iterations !== undefined && typeof newDoc.iterations !== 'number') {
        refuse('iterations must be a number.');
      }
      if (typeof newDoc.derived_key !== 'string') refuse('derived_key must be a string.');
    }
  }

  if (!isAdmin()) {
    if (before) {
      if (userCtx.name !== newDoc.name) refuse('You may only update your own user document.');
      if (inOrder(before.roles) !== inOrder(newDoc.roles)) refuse('Only _admin may edit roles');
    } else if (newDoc.roles.length > 0) {
      refuse('Only _admin may set roles');
    }
  }

  newDoc.roles.forEach(function (role) {
    if (role.charAt(0) === '_' && role !== '_metrics') {
      refuse('No system roles (starting with underscore) in users db.');
    }
  });
  if (newDoc.name.charAt(0) === '_') refuse('Username may not start with underscore.');
  if (newDoc.name.indexOf(':') >= 0) {
    refuse('Character ' + String.fromCharCode(96) + ':' + String.fromCharCode(96) + ' is not allowed in usernames.');
  }
}`

/** The stored text of the design document as settee makes it. Hosted mode accepts and runs only this text. */
export const AUTH_DESIGN_BODY: string = JSON.stringify({
  language: 'javascript',
  validate_doc_update: VALIDATE,
})
