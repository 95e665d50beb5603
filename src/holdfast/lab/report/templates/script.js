"use strict";
(function () {
  const copy = document.getElementById("copy");
  if (navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", function () {
      navigator.clipboard.writeText(document.getElementById("command").textContent);
      copy.textContent = "Copied";
    });
  }
  // One cursor through all drawings of a part, with the values of that moment. Of each chart the
  // page shows the drawing that fits; the others have no size.
  for (const group of document.querySelectorAll(".charts")) {
    const total = Number(group.dataset.total);
    const drawings = Array.from(group.querySelectorAll("svg.chart")).map(function (svg) {
      const line = document.createElementNS(svg.namespaceURI, "line");
      line.setAttribute("class", "cursor");
      line.setAttribute("y1", 0);
      line.setAttribute("y2", svg.viewBox.baseVal.height - 26);
      line.style.display = "none";
      svg.appendChild(line);
      const data = svg.closest("figure").querySelector("script.data");
      return { svg: svg, line: line, data: data ? JSON.parse(data.textContent) : null };
    });
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.style.display = "none";
    group.appendChild(tip);
    function hide() {
      tip.style.display = "none";
      for (const each of drawings) each.line.style.display = "none";
    }
    function nearest(rows, time) {
      let low = 0, high = rows.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (rows[middle][0] < time) low = middle + 1; else high = middle;
      }
      return low > 0 && time - rows[low - 1][0] < rows[low][0] - time ? rows[low - 1] : rows[low];
    }
    group.addEventListener("pointerleave", hide);
    group.addEventListener("pointermove", function (event) {
      const shown = drawings.filter(function (each) { return each.svg.clientWidth > 0; });
      if (!shown.length) return;
      const svg = shown[0].svg, box = svg.getBoundingClientRect();
      const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
      const at = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      if (at < left || at > right) { hide(); return; }
      const time = (at - left) / (right - left) * total;
      const lines = [(time / 1000).toFixed(2) + " s"];
      for (const each of shown) {
        each.line.style.display = "";
        each.line.setAttribute("x1", at);
        each.line.setAttribute("x2", at);
        if (!each.data || !each.data.rows.length) continue;
        const near = nearest(each.data.rows, time);
        each.data.names.forEach(function (name, index) {
          const value = near[index + 1];
          if (value !== null) lines.push((name ? name + "  " : "") + value + each.data.unit);
        });
      }
      tip.textContent = lines.join("\n");
      tip.style.display = "";
      const around = group.getBoundingClientRect();
      const x = event.clientX - around.left;
      const wanted = x + 14 + tip.offsetWidth > around.width ? x - tip.offsetWidth - 14 : x + 14;
      tip.style.left = Math.max(0, wanted) + "px";
      tip.style.top = (event.clientY - around.top + 14) + "px";
    });
  }
})();
