const fs=require("fs");const f=fs.readdirSync("/tmp/reads-prof").map(n=>"/tmp/reads-prof/"+n).sort((a,b)=>fs.statSync(b).size-fs.statSync(a).size)[0];
const p=JSON.parse(fs.readFileSync(f));const self={};const dt=p.timeDeltas;p.samples.forEach((id,i)=>self[id]=(self[id]||0)+dt[i]);
const by={};let tot=0;for(const n of p.nodes){const k=n.callFrame.functionName+" "+n.callFrame.url.split("/").slice(-2).join("/")+":"+n.callFrame.lineNumber;if(/idle|program/.test(k))continue;by[k]=(by[k]||0)+(self[n.id]||0);tot+=(self[n.id]||0)}
Object.entries(by).sort((a,b)=>b[1]-a[1]).slice(0,40).forEach(([k,v])=>console.log((v/tot*100).toFixed(1)+"%",k))
