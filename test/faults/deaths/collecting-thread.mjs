// A database thread that dies as dying-thread.mjs does, and collects all its garbage again and again.
import './collecting.mjs'
import './dying-thread.mjs'
