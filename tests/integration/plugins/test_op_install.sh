#!/usr/bin/env bash
# What `cmake --install` leaves is enough to build the example outside of the tree and to fuzz it.
source tests/integration/common.bash
build=$(dirname "$SHARDFUZZ")
check "installed" cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
example=$work/prefix/share/doc/shardfuzz/examples/relu2.c
check "the example is at most 40 lines" [ "$(wc -l <"$example")" -le 40 ]
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
cd "$work" || exit 1
check "the example builds" cc -std=c11 -Wall -Wextra -Werror -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o relu2.so "$example"
check "the header is C++ too" c++ -Wall -Wextra -Wshadow -Werror -fsyntax-only $(pkg-config --cflags shardfuzz) -x c++ - <<<'#include <shardfuzz/plugin.h>'
SHARDFUZZ=$work/prefix/bin/shardfuzz
run 0 fuzz --target plugin:./relu2.so --cases 5000 --json
is_json "j['passed']" 5000
sed 's/positive \* positive/positive/' "$example" >wrong.c
check "a changed one builds" cc -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o wrong.so wrong.c
run 1 fuzz --target plugin:./wrong.so --cases 5000 --json
is_json "j['by_signature'][0]['signature']" tolerance/relu2_fwd/y

layer=$work/prefix/share/doc/shardfuzz/examples/linear_fc2.c
check "the layer is at most 60 lines" [ "$(wc -l <"$layer")" -le 60 ]
check "the layer builds" cc -std=c11 -Wall -Wextra -Werror -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o linear_fc2.so "$layer"
run 0 fuzz --target plugin:./linear_fc2.so --cases 60 --json
is_json "j['passed']" 60
sed 's/^  call->comm->all_reduce.*$//' "$layer" >wrong_layer.c
check "a layer without its sum builds" cc -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o wrong_layer.so wrong_layer.c
run 1 fuzz --target plugin:./wrong_layer.so --cases 12 --max-ranks 2 --shrink-budget 20 --out "$work/wrong" --json
check "it is found in its module" [ -e "$work/wrong/conflict-act-mlp.linear_fc2@tp/min.json" ]

model=$work/prefix/share/doc/shardfuzz/examples/gpt.c
check "the model builds" cc -std=c11 -Wall -Wextra -Werror -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o gpt.so "$model" -lm
run 0 fuzz --target plugin:./gpt.so --cases 40 --json
is_json "j['passed'] > 20 and j['passed'] + j['skipped'] == 40" True
sed 's/sqrtf(p->v\[i\] \/ bias2)/sqrtf(p->v[i])/' "$model" >wrong_model.c
check "a model without one bias correction builds" cc -shared -fPIC -O2 $(pkg-config --cflags --libs shardfuzz) -o wrong_model.so wrong_model.c -lm
run 1 fuzz --target plugin:./wrong_model.so --cases 12 --shrink-budget 20 --out "$work/wrong_model" --json
check "it is found in the optimizer: $(ls "$work/wrong_model")" [ -n "$(find "$work/wrong_model" -name 'tolerance-param_delta-*')" ]
finish
