/**
 * Below the data folder: the files of it as they were before a newer settee changed their schema. A folder by kind
 * and schema (`databases-4`, `server-2`) holds them under their own names.
 */
export const COPIES_FOLDER = 'before-upgrade'
