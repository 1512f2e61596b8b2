/** settee's own design document of the database `_users`: what CouchDB's `_design/_auth` demands of accounts. */

export const AUTH_DESIGN_ID = '_design/_auth'

const VALIDATE = `function (newDoc, oldDoc, userCtx) {
  if (newDoc._deleted === true) return
  if (newDoc.type !== 'user') throw { forbidden: 'doc.type must be user' }
  if (newDoc._id !== 'org.couchdb.user:' + newDoc.name) {
    throw { forbidden: 'Doc ID must be of the form org.couchdb.user:name' }
  }
  if (!isArray(newDoc.roles)) throw { forbidden: 'doc.roles must be an array' }
}`

/** The text of the document as it is stored. */
export const AUTH_DESIGN_BODY: string = JSON.stringify({
  language: 'javascript',
  validate_doc_update: VALIDATE,
})
